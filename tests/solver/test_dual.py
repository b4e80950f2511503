"""Any multipliers give a sound bound; the gradients are right; better multipliers are found."""

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lingraft.model.activations import KNOWN, Activation, Lines
from lingraft.model.activations.record import PLACES
from lingraft.solver import ascent
from lingraft.solver.ascent import improve
from lingraft.solver.branching import split
from lingraft.solver.collapse import Collapsed
from lingraft.solver.dual import Domains, Dual, outward, root_domains

SEEDS = st.integers(0, 10**6)
KINDS = st.sampled_from(["relu", "relu", "leaky", "sigmoid", "tanh"])


def _restricted(dual: Dual, collapsed: Collapsed, z: Tensor, seed: int, dtype: torch.dtype) -> tuple[Domains, Tensor]:
    """Domains split at random taps to the side on which one of the points lies, with random multipliers.

    Also whether each point (B, N) satisfies the splits.
    """
    generator = torch.Generator().manual_seed(seed)
    count = len(collapsed.c)
    domains = root_domains(collapsed, dtype)
    inside = torch.ones(count, z.shape[1], dtype=torch.bool)
    for b in range(count):
        own = int(torch.randint(z.shape[1], (), generator=generator))
        chosen = (torch.rand(len(z), generator=generator) < 0.3).nonzero().flatten().tolist()
        for tap in chosen:
            share = float(torch.rand((), generator=generator))
            lower, upper = domains.lower[tap, b], domains.upper[tap, b]
            at = torch.zeros((), dtype=dtype) if dual.relu[tap, 0] else lower + (upper - lower) * share
            side = 1 if z[tap, own] >= at else -1
            (domains.lower if side > 0 else domains.upper)[tap, b] = at
            domains.split[tap, b] = side
            inside[b] &= (z[tap] >= at.double()) if side > 0 else (z[tap] <= at.double())
    domains.alpha = torch.rand(domains.alpha.shape, generator=generator).to(dtype)
    scale = 10 ** (3 * torch.rand(count, generator=generator) - 2)
    beta = torch.rand(domains.alpha.shape, generator=generator) * scale
    domains.beta = torch.where(domains.split != 0, beta, 0.0).to(dtype)
    return domains, inside


@settings(max_examples=30, deadline=None)
@given(SEEDS, KINDS, st.floats(0.01, 1), st.booleans())
def test_any_multipliers_are_sound(seed: int, kind: str, eps: float, graft: bool) -> None:
    collapsed, z, _, margins = nets.with_taps(seed, kind, eps, graft)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-3)):
        dual = Dual(collapsed, dtype)
        domains, inside = _restricted(dual, collapsed, z, seed, dtype)
        assert bool(inside.any(1).all())
        if dual.smooth:  # β < 0 stands for the other side of the tap's interval
            domains.beta *= (
                torch.randint(0, 2, domains.beta.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
            )
        bound = dual.bound(domains).double()[:, None]
        slack = tolerance * (1 + bound.abs())
        assert bool((margins >= bound - slack)[inside].all())
        better, improved = improve(dual, domains, 8)
        assert bool((margins >= better[:, None].double() - slack)[inside].all())
        assert bool(((improved.alpha >= 0) & (improved.alpha <= 1)).all())
        assert dual.smooth or bool((improved.beta >= 0).all())
        assert bool((improved.beta[improved.split == 0] == 0).all())


@settings(max_examples=30, deadline=None)
@given(SEEDS, KINDS, st.floats(0.01, 1), st.booleans())
def test_precisions_agree(seed: int, kind: str, eps: float, graft: bool) -> None:
    collapsed, z, _, _ = nets.with_taps(seed, kind, eps, graft)
    single, double = Dual(collapsed, torch.float32), Dual(collapsed, torch.float64)
    domains, _ = _restricted(single, collapsed, z, seed, torch.float32)
    found, expected = single.bound(domains).double(), double.bound(domains.to(torch.float64))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def _mixed(record: Activation, lower: Tensor, upper: Tensor, alpha: Tensor) -> Lines:
    """Between the lines at two places, as far as α is from one to the other."""
    assert record.lines_at is not None
    lines = torch.stack([torch.stack(record.lines_at(lower, upper, torch.tensor(place).to(lower))) for place in PLACES])
    where = (len(PLACES) - 1) * alpha
    first = where.detach().floor().long().clamp(max=len(PLACES) - 2)
    index = first.expand(1, 4, *first.shape)
    return Lines(*torch.lerp(lines.gather(0, index)[0], lines.gather(0, index + 1)[0], where - first))


def _reference(collapsed: Collapsed, domains: Domains, alpha: Tensor, beta: Tensor) -> Tensor:
    """The bound once more, with autograd and without anything clever: backward over the taps, then over the box."""
    q, p, c = (t[..., domains.margin] for t in (collapsed.q, collapsed.p, collapsed.c))
    q, constant = q.clone(), c
    for taps in reversed(collapsed.taps):
        here = slice(taps.first, taps.last)
        lower, upper = domains.lower[here], domains.upper[here]
        if taps.kind == "relu":
            lines = KNOWN[taps.kind].lines(lower, upper)
            below = torch.where((lower < 0) & (upper > 0), alpha[here], lines.lower_slope)
        else:
            lines = _mixed(KNOWN[taps.kind], lower, upper, alpha[here])
            below = lines.lower_slope
        positive, negative = q[here].clamp(min=0), q[here].clamp(max=0)
        split, b = domains.split[here], beta[here]
        slope = positive * below + negative * lines.upper_slope - split * b
        edge = torch.zeros_like(lower) if taps.kind == "relu" else torch.where(split > 0, lower, upper)
        constant = constant + (positive * lines.lower_intercept + negative * lines.upper_intercept).sum(0)
        constant = constant + (split * b * edge).sum(0) + taps.r @ slope
        p = p + taps.P.dense().t() @ slope
        q = torch.cat([q[: taps.first] + taps.Q.dense().t() @ slope, q[taps.first :]])
    return constant + collapsed.center @ p - collapsed.radius @ p.abs()


@settings(max_examples=30, deadline=None)
@given(SEEDS, KINDS, st.floats(0.05, 1), st.booleans())
def test_bound_and_gradients_agree_with_autograd(seed: int, kind: str, eps: float, graft: bool) -> None:
    collapsed, z, _, _ = nets.with_taps(seed, kind, eps, graft)
    dual = Dual(collapsed, torch.float64)
    domains, _ = _restricted(dual, collapsed, z, seed, torch.float64)
    alpha, beta = domains.alpha.clone().requires_grad_(), domains.beta.clone().requires_grad_()
    expected = _reference(collapsed, domains, alpha, beta)
    bound = dual.bound(domains)  # less what rounding may have added
    assert bool((bound <= expected + 1e-9 * (1 + expected.abs())).all())
    torch.testing.assert_close(bound, expected.detach(), rtol=1e-7, atol=1e-7)
    if collapsed.count:
        by_alpha, by_beta = torch.autograd.grad(expected.sum(), (alpha, beta))
        seen: list[Tensor] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ascent.Adam, "ascend", lambda self, gradient, rate: seen.append(gradient.clone()))
            improve(dual, domains, 1)
        rows = (domains.split != 0).any(1)
        if bool(rows.any()):
            assert len(seen) == 2
            given = seen[0] * domains.split[rows].abs()
            torch.testing.assert_close(given, by_beta[rows] * domains.split[rows].abs(), rtol=1e-7, atol=1e-9)
        chosen = dual.open(domains) | ~dual.relu
        torch.testing.assert_close(seen[-1], by_alpha * chosen, rtol=1e-7, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.floats(0.05, 1), st.booleans())
def test_children_never_below_the_parent(seed: int, eps: float, graft: bool) -> None:
    """There are always multipliers with which both children of any split reach the parent's bound: from the parent's
    λ on the split tap, β = q − λ (on) or λ (off) where q ≥ 0, and 0 where q < 0 (pre-activations here are exact)."""
    model, shape = nets.vector(seed, hidden=(8,))
    if graft:
        model = nets.grafted(model, shape, seed)
    _, _, collapsed = nets.collapsed(model, nets.box(shape, seed, eps), nets.margins(0), torch.zeros(2).double())
    if not collapsed.count:
        return
    dual = Dual(collapsed, torch.float64)
    generator = torch.Generator().manual_seed(seed)
    parents = root_domains(collapsed, torch.float64)
    parents.alpha = torch.rand(parents.alpha.shape, generator=generator).double()
    tap = torch.randint(collapsed.count, (len(parents),), generator=generator)
    for _ in range(3):
        evaluation = dual.evaluate(parents)
        columns = torch.arange(len(parents))
        q, alpha = evaluation.q[tap, columns].clamp(min=0), parents.alpha[tap, columns]
        children = split(dual, parents, tap)
        children.beta[tap, columns] = q * (1 - alpha)
        children.beta[tap, columns + len(parents)] = q * alpha
        bound = dual.bound(children)
        assert bool((bound >= evaluation.bound.repeat(2) - 1e-9).all())
        parents, open_ = children, dual.open(children)
        if not bool(open_.any(0).all()):
            return
        tap = open_.double().argmax(0)


@settings(max_examples=10, deadline=None)
@given(SEEDS, KINDS)
def test_a_region_of_one_point_gives_the_margins(seed: int, kind: str) -> None:
    collapsed, _, _, margins = nets.with_taps(seed, kind, 0.0, True)
    bound = Dual(collapsed, torch.float64).bound(root_domains(collapsed, torch.float64))
    torch.testing.assert_close(bound, margins[:, 0], rtol=0, atol=1e-7)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e30, 1e30, allow_subnormal=True), min_size=2, max_size=2))
def test_bounds_are_rounded_outwards(pair: list[float]) -> None:
    lower, upper = (torch.tensor([v], dtype=torch.float64) for v in sorted(pair))
    for dtype in (torch.float32, torch.float64):
        low, high = (t.double() for t in outward(lower, upper, dtype))
        rounded = 1e-12 * max(1.0, abs(pair[0]), abs(pair[1]))  # what computing them in float64 may have cost
        assert float(low) <= float(lower) - rounded
        assert float(high) >= float(upper) + rounded
        torch.testing.assert_close(torch.cat([low, high]), torch.cat([lower, upper]), rtol=0, atol=1e6 * rounded)


def test_select_join_and_precision_keep_domains_apart() -> None:
    collapsed, z, _, _ = nets.with_taps(5, "relu", 0.5, False)
    dual = Dual(collapsed, torch.float64)
    domains, _ = _restricted(dual, collapsed, z, 5, torch.float64)
    bound = dual.bound(domains)
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(dual.bound(domains.select(order)), bound[order])
    torch.testing.assert_close(dual.bound(Domains.join([domains.select(order[:1]), domains])), bound[[2, 0, 1, 2]])
