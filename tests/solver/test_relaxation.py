"""Lines of smooth taps for any α lie on their side of the function, also those that are kept from other domains."""

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lingraft.model.activations import KNOWN, Lines
from lingraft.model.activations.record import PLACES
from lingraft.solver.ascent import improve
from lingraft.solver.dual import Dual, root_domains
from lingraft.solver.relaxation import SmoothLines, at_alpha

SEEDS = st.integers(0, 10**6)
CHOOSING = sorted(name for name, record in KNOWN.items() if record.lines_at is not None)


def _intervals(seed: int, *shape: int) -> tuple[Tensor, Tensor]:
    """Ends of intervals from a point to long ones, some of which repeat along the last dimension."""
    generator = torch.Generator().manual_seed(seed)
    middle = 3 * torch.randn(*shape, generator=generator, dtype=torch.float64)
    half = 10 ** (6 * torch.rand(shape, generator=generator, dtype=torch.float64) - 5)
    half[torch.rand(shape, generator=generator) < 0.1] = 0
    if len(shape) > 1:
        shared = torch.rand(shape, generator=generator) < 0.6
        middle = torch.where(shared, middle[..., :1], middle)
        half = torch.where(shared, half[..., :1], half)
    return middle - half, middle + half


def _around(lines: Lines, kind: str, lower: Tensor, upper: Tensor) -> bool:
    """Whether the function is between the lines at many points of each interval."""
    z = lower + torch.linspace(0, 1, 101, dtype=torch.float64).view(-1, *(1,) * lower.dim()) * (upper - lower)
    z = z.clamp(lower, upper)
    values = KNOWN[kind].value(z)
    below, above = (s * z + i for s, i in ((lines[0], lines[1]), (lines[2], lines[3])))
    return bool((below <= values + 1e-14).all() and (above >= values - 1e-14).all())


def test_the_everyday_smooth_activations_have_a_choice() -> None:
    assert {"sigmoid", "tanh", "gelu", "silu", "softplus", "elu"} <= set(CHOOSING)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from(CHOOSING))
def test_mixed_lines_are_lines(seed: int, kind: str) -> None:
    lower, upper = _intervals(seed, 50)
    alpha = torch.rand(50, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for some in (alpha, torch.zeros_like(alpha), torch.ones_like(alpha)):
        assert _around(at_alpha(KNOWN[kind], lower, upper, some), kind, lower, upper)
    middle = at_alpha(KNOWN[kind], lower, upper, torch.full_like(alpha, 0.5))
    for line, usual in zip(middle, KNOWN[kind].lines(lower, upper), strict=True):
        torch.testing.assert_close(line, usual, rtol=0, atol=1e-7)


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from(CHOOSING))
def test_lines_kept_from_other_domains_are_those_of_the_interval(seed: int, kind: str) -> None:
    """One object that is asked for several batches of domains, of several kinds of taps, and one for each batch."""
    kinds = [(0, 4, kind), (4, 9, "relu"), (9, 15, kind), (15, 18, "tanh")]
    kept = SmoothLines(kinds)
    for turn in range(3):
        lower, upper = _intervals(seed + turn, 18, 6)
        alpha = torch.rand(18, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        open_ = torch.zeros_like(lower, dtype=torch.bool)
        open_[4:9] = (lower[4:9] < 0) & (upper[4:9] > 0)
        found = kept.relaxation(lower, upper, open_).at(alpha)
        for line, again in zip(found, SmoothLines(kinds).relaxation(lower, upper, open_).at(alpha), strict=True):
            assert torch.equal(line, again)
        for first, last, name in kinds:
            here = Lines(*(line[first:last] for line in found))
            assert _around(here, name, lower[first:last], upper[first:last])


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.sampled_from(["sigmoid", "tanh"]), st.floats(0, 1))
def test_steps_choose_better_lines(seed: int, kind: str, eps: float) -> None:
    """No bound above the least margin that is seen, none below that of the lines in the middle; some above it."""
    collapsed, _, _, margins = nets.with_taps(seed, kind, eps, False)
    dual, root = Dual(collapsed, torch.float64), root_domains(collapsed, torch.float64)
    before = dual.bound(root)
    after, _ = improve(dual, root, 30)
    assert bool((after >= before - 1e-2 * (1 + before.abs())).all())
    assert bool((after <= margins.amin(1) + 1e-9).all())


@pytest.mark.parametrize("kind", ["sigmoid", "tanh"])
def test_lines_are_chosen_where_it_helps(kind: str) -> None:
    gained = 0.0
    for seed in range(5):
        collapsed, *_ = nets.with_taps(seed, kind, 0.7, False)
        dual, root = Dual(collapsed, torch.float64), root_domains(collapsed, torch.float64)
        gained += float((improve(dual, root, 30)[0] - dual.bound(root)).sum())
    assert gained > 0


def test_no_domains_have_no_lines() -> None:
    kept = SmoothLines([(0, 3, "tanh")])
    ends = torch.zeros(3, 2), torch.ones(3, 2)
    for columns in (0, 2, 0):
        some = [end[:, :columns] for end in ends]
        assert kept.relaxation(*some, torch.zeros(3, columns, dtype=torch.bool)).at(some[0])[0].shape == (3, columns)


def test_the_middle_is_a_place() -> None:
    assert PLACES[len(PLACES) // 2] == 0.5
    assert len(PLACES) % 2 == 1
