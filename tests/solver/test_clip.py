"""Clipped bounds hold at every point of a domain whose margin is not positive, and they are the best of all γ tried."""

import pytest
import random_networks as nets
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lingraft.solver.branching import split
from lingraft.solver.clip import GRID, Forms, clip_by_own_forms
from lingraft.solver.dual import Dual, root_domains

SEEDS = st.integers(0, 10**6)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from(["relu", "relu", "leaky", "tanh"]), st.floats(0.01, 0.9), st.booleans(), st.booleans())
@example(65537, "relu", 0.5, True, False)  # a margin that is 0 everywhere, and 1e-17 when computed
def test_points_with_a_margin_that_is_not_positive_stay(
    seed: int, kind: str, share: float, conv: bool, single: bool
) -> None:
    *_, collapsed, z, margins = nets.partly_negative(seed, kind, share, conv)
    if not collapsed.count:
        return
    dtype = torch.float32 if single else torch.float64
    dual, exact = Dual(collapsed, dtype), Dual(collapsed, torch.float64)
    root = root_domains(collapsed, dtype)
    forms = Forms(collapsed, exact, root.exactly())
    forms.clip(root, exact.bounded(root.exactly()))
    here = z[:, margins <= 0]
    assert here.shape[1]
    assert bool((here >= root.lower.double() - 1e-9).all())
    assert bool((here <= root.upper.double() + 1e-9).all())
    if not bool(dual.splittable(root).any()):
        return
    tap = dual.splittable(root).to(dtype).argmax(0)
    children = split(dual, root, tap)
    edge = float(children.lower[tap, 0])
    children.beta[tap] = torch.rand(1, 2).to(dtype)
    forms.clip(children, exact.bounded(children.exactly()))
    for side, keep in enumerate([z[tap[0]] >= edge, z[tap[0]] <= edge]):
        here = z[:, keep & (margins <= 0)]
        assert bool((here >= children.lower[:, side, None].double() - 1e-9).all())
        assert bool((here <= children.upper[:, side, None].double() + 1e-9).all())


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from(["tanh", "sigmoid"]), st.floats(0.01, 0.9), st.booleans())
def test_own_forms_keep_points_with_a_margin_that_is_not_positive(
    seed: int, kind: str, share: float, single: bool
) -> None:
    """In the region and in both halves of each of two splits, whose taps have narrower intervals than the region."""
    *_, collapsed, z, margins = nets.partly_negative(seed, kind, share)
    dtype = torch.float32 if single else torch.float64
    dual, exact = Dual(collapsed, dtype), Dual(collapsed, torch.float64)
    domains, inside = root_domains(collapsed, dtype), (margins <= 0)[None]
    for depth in range(3):
        taps = torch.arange(collapsed.count)
        clip_by_own_forms(exact, domains, exact.bounded(domains.exactly()), taps)
        for column, keep in enumerate(inside):
            here = z[:, keep]
            assert bool((here >= domains.lower[:, column, None].double() - 1e-9).all())
            assert bool((here <= domains.upper[:, column, None].double() + 1e-9).all())
        if depth == 2 or not bool(dual.splittable(domains).any(0).all()):
            return
        tap = dual.splittable(domains).to(dtype).argmax(0)
        children = split(dual, domains, tap)
        edge = children.lower[tap, torch.arange(len(tap))].double()[:, None]
        inside = torch.cat([inside & (z[tap] >= edge), inside & (z[tap] <= edge)])
        domains = children


def test_own_forms_know_of_splits() -> None:
    """Where the first site is split, bounds of the second shrink that forms of the whole region leave as they are."""
    shrunk = 0
    for seed in range(6):
        *_, collapsed, _, _ = nets.partly_negative(seed, "tanh", 0.1)
        dual, exact = Dual(collapsed, torch.float64), Dual(collapsed, torch.float64)
        domains = root_domains(collapsed, torch.float64)
        forms, behind = Forms(collapsed, exact, domains.exactly()), slice(dual.taps[1][0], None)
        for tap in range(min(3, dual.taps[0][1])):
            domains = split(dual, domains, torch.full((len(domains),), tap))
        forms.clip(domains, exact.bounded(domains.exactly()))
        width = (domains.upper - domains.lower)[behind].sum()
        row = exact.bounded(domains.exactly())
        clip_by_own_forms(exact, domains, row, torch.arange(collapsed.count)[behind])
        shrunk += int((domains.upper - domains.lower)[behind].clamp(min=0).sum() < 0.9 * width)
    assert shrunk >= 4


@pytest.mark.parametrize("seed", range(8))
def test_equals_the_formula(seed: int) -> None:
    """b + γc − ‖a + γp‖₁ for each γ, computed tap by tap without groups, windows or float32."""
    *_, collapsed, _, _ = nets.partly_negative(seed, "relu", 0.05, convolutional=seed % 2 == 0)
    if not collapsed.count:
        pytest.skip("this network has no taps")
    exact = Dual(collapsed, torch.float64)
    root = root_domains(collapsed, torch.float64)
    before = root.select(torch.tensor([0]))
    margin = exact.bounded(root.exactly())
    forms = Forms(collapsed, exact, root.exactly())
    forms.clip(root, margin)
    group = forms.group_of(collapsed.count)
    lines = exact.lines(before)
    for tap in range(collapsed.count):
        for sign, old, new in ((1, before.lower, root.lower), (-1, -before.upper, -root.upper)):
            row = exact.tap_rows(torch.tensor([tap]))
            form = exact.backward(type(row)(*(sign * t for t in row)), lines, None)
            a, b = form.p[:, 0], form.c + form.p.abs().sum()
            p, c = margin.p[:, 0], margin.c + margin.p.abs().sum()
            expected = old[tap]
            reach = p[forms.groups[group[tap]].pixels].abs().sum() if group[tap] >= 0 else torch.zeros(())
            if -float(margin.c) < 2 * reach:
                for k in GRID:
                    gamma = k * a.abs().sum() / reach
                    expected = torch.maximum(expected, b + gamma * c - (a + gamma * p).abs().sum())
            size = 1e-4 * (1 + a.abs().sum())
            assert float(expected - size) <= float(new[tap]) <= float(expected) + 1e-9


def test_clipping_pays_where_the_bound_is_close() -> None:
    """With a bound just below 0 hardly any of the region is left, and most intervals shrink."""
    shrunk = 0
    for seed in range(6):
        model, shape = nets.vector(seed, hidden=(8, 6))
        region, spec = nets.box(shape, seed, 0.5), nets.margins(0)[:1]
        _, _, collapsed = nets.collapsed(model, region, spec, torch.zeros(1).double())
        exact = Dual(collapsed, torch.float64)
        low = exact.bound(root_domains(collapsed, torch.float64).exactly())
        _, _, collapsed = nets.collapsed(model, region, spec, -low - 0.05)
        exact = Dual(collapsed, torch.float64)
        root = root_domains(collapsed, torch.float64)
        width = (root.upper - root.lower).clone()
        Forms(collapsed, exact, root.exactly()).clip(root, exact.bounded(root.exactly()))
        shrunk += int((root.upper - root.lower < 0.7 * width).sum()) > collapsed.count / 3
    assert shrunk >= 4
