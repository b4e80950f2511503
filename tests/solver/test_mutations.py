"""The suite notices wrong rules: each mutation flips one sign, or one side, and the checks below must then fail.

The checks are the properties that the other tests assert at length, in a compact form: sampled values inside bounds,
the collapsed network equal to the network, bounds of restricted domains below sampled margins, counterexamples kept by
tightening, and complete verdicts equal to exact ones.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import random_networks as nets
import torch
from exact_milp import Oracle
from torch import Tensor

from lingraft import LingraftError
from lingraft.model.activations import KNOWN, Lines, relu
from lingraft.solver import (
    affine,
    ascent,
    bab,
    bounds,
    box_bounds,
    boxes,
    branching,
    clip,
    collapse,
    crown,
    dual,
    facets,
    forms,
    halfspaces,
    intervals,
    matrix,
    methods,
    nodes,
    relaxation,
    substitution,
    tighten,
    unfolding,
    verifier,
)
from lingraft.solver.ascent import improve
from lingraft.solver.bounds import bound_sites, margin_crown, margin_intervals
from lingraft.solver.branching import split
from lingraft.solver.budget import Budget, Exhausted
from lingraft.solver.dual import Dual, Relaxed, Row, root_domains
from lingraft.solver.falsify import Falsifier
from lingraft.solver.lowering import arithmetic as lowered_arithmetic
from lingraft.solver.lowering import pooling as lowered_pooling
from lingraft.solver.methods import METHODS
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.rounding import Sizes
from lingraft.solver.rows import Rows

pytestmark = pytest.mark.slow

ROUNDING = 1e-9


# --- the checks -----------------------------------------------------------------------------------------------------


def _networks() -> Iterator[tuple]:
    """Networks in which every rule matters, each with a region, points of it, two margins and their values there."""
    built = [
        nets.grafted(*nets.vector(3, hidden=(6, 5)), 3),
        nets.vector(4, "leaky", hidden=(6, 5))[0],
        nets.vector(5, "sigmoid", hidden=(5, 4), gain=3)[0],
        nets.vector(6, "tanh", hidden=(5, 4), gain=3)[0],
        nets.residual_vector(7, sign=-1)[0],
        nets.max_pool(8)[0],
        nets.conv(11, "affine")[0],
        nets.conv(13, "move")[0],
    ]
    shapes = [(3,)] * 5 + [nets.max_pool(8)[1], nets.conv(11, "affine")[1], nets.conv(13, "move")[1]]
    for seed, (model, shape) in enumerate(zip(built, shapes, strict=True)):
        region = nets.box(shape, seed, 0.7)
        points = nets.points(region, seed, 300, model)
        spec, offset = nets.margins(seed % 3), torch.tensor([0.3, -0.2], dtype=torch.float64)
        with torch.no_grad():
            yield model, region, points, spec, offset, model(points) @ spec.t() + offset


def _bounds_hold() -> None:
    for model, region, points, *_ in _networks():
        seen = nets.preactivations(model, points)
        found = [methods.bounds(model, region, method) for method in METHODS]
        with nets.rows_only():
            found.append(methods.bounds(model, region, "crown"))
        for each in found:
            for name, (lower, upper) in each.items():
                assert bool((seen[name] >= lower - ROUNDING).all())
                assert bool((seen[name] <= upper + ROUNDING).all())


def _spans_hold() -> None:
    for model, region, points, *_ in _networks():
        network = Network.from_module(model, region.lower.shape)
        found, values = bound_sites(network, region, Budget()), network.values(points)
        again = unfolding.Unfolding(network, found.center, found.radius, found.share, Budget())
        for i in network.sites:
            again.bounded(i, found.lines[i], found.unstable(network, i), *found.bounds[i])
        for i in network.sites:
            before = network.nodes[i].inputs[0]
            span = again.spans(before)
            assert span is not None
            assert bool(((values[before] >= span[0] - ROUNDING) & (values[before] <= span[1] + ROUNDING)).all())


def _bounds_are_crowns() -> None:
    """Unstable neurons have the same bounds whether rows pass back or values unfold."""
    for model, region, *_ in _networks():
        network = Network.from_module(model, region.lower.shape)
        found = bound_sites(network, region, Budget())
        with nets.rows_only():
            rows = bound_sites(network, region, Budget())
        for i in network.sites:
            open_ = found.unstable(network, i)
            assert not bool((open_ & ~rows.unstable(network, i)).any())
            for ours, theirs, side in zip(found.bounds[i], rows.bounds[i], (1, -1), strict=True):
                assert bool((side * (ours - theirs)[open_] >= -ROUNDING).all()), "no worse"


def _the_collapsed_network_is_the_network() -> None:
    _collapsing_is_exact()
    with nets.rows_only():
        _collapsing_is_exact()


def _collapsing_is_exact() -> None:
    for model, region, points, spec, offset, margins in _networks():
        network, found, collapsed = nets.collapsed(model, region, spec, offset)
        for bound in (margin_intervals(found, spec, offset), margin_crown(network, found, spec, offset)):
            assert bool((bound <= margins + ROUNDING).all())
        x = network.inside(points).flatten(1).t()
        z, h = nets.tap_values(network, collapsed, points)
        for taps in collapsed.taps:
            here = taps.P.times(x) + taps.r[:, None]
            here = here + taps.Q.times(h[: taps.first]) if taps.first else here
            torch.testing.assert_close(here, z[taps.first : taps.last], rtol=0, atol=ROUNDING)
        given = collapsed.p.t() @ x + collapsed.q.t() @ h + collapsed.c[:, None]
        torch.testing.assert_close(given.t(), margins, rtol=0, atol=ROUNDING)


def _domains_are_bounded() -> None:
    """Both sides of three splits, one after the other: the points of each side have margins above its bound."""
    for model, region, points, spec, offset, margins in _networks():
        network, _, collapsed = nets.collapsed(model, region, spec, offset)
        if not collapsed.count:
            continue
        z, _ = nets.tap_values(network, collapsed, points)
        exact = Dual(collapsed, torch.float64)
        domains = root_domains(collapsed, torch.float64)
        inside = torch.ones(len(domains), len(points), dtype=torch.bool)
        for turn in range(4):
            found, domains = improve(exact, domains, 6)
            for values in (found, exact.bound(domains)):
                assert bool((margins.t()[domains.margin] >= values[:, None] - ROUNDING)[inside].all())
            tap = torch.full((len(domains),), turn % collapsed.count)
            at = (domains.lower[tap[0]] + domains.upper[tap[0]]) / 2 * ~exact.relu[tap[0]]
            above = z[tap] >= at[:, None]
            domains = split(exact, domains, tap)
            inside = torch.cat([inside & above, inside & (z[tap] <= at[:, None])])
            assert bool(((z >= domains.lower.t()[:, :, None] - ROUNDING).all(1) | ~inside).all())
            assert bool(((z <= domains.upper.t()[:, :, None] + ROUNDING).all(1) | ~inside).all())


def _facets_are_bounds() -> None:
    for model, region, points, spec, offset, margins in _networks():
        network, _, collapsed = nets.collapsed(model, region, spec, offset)
        above = facets.Above(collapsed)
        if not above.count:
            continue
        z, _ = nets.tap_values(network, collapsed, points)
        x = network.inside(points).flatten(1).t() - collapsed.center[:, None]
        x = x / collapsed.radius[:, None].clamp(min=1e-30)  # a pixel may be fixed
        exact, domains = Dual(collapsed, torch.float64), root_domains(collapsed, torch.float64)
        for i in range(len(domains)):
            found = above.facets(facets.fit(above, exact, domains.select(torch.tensor([i]))))
            higher = found.G.times(x) + found.g >= z[: len(found.g)].clamp(min=0) - ROUNDING
            assert bool((higher | ~found.used).all())
            for share in (0.5, 1.0):
                domain = domains.select(torch.tensor([i]))
                domain.share[: len(found.g)] = share
                assert float(exact.with_facets(found).bound(domain)) <= float(margins[:, i].min()) + ROUNDING


def _multipliers_help() -> None:
    better = same = 0
    for model, region, _, spec, offset, _ in _networks():
        _, _, collapsed = nets.collapsed(model, region, spec, offset)
        exact, domains = Dual(collapsed, torch.float64), root_domains(collapsed, torch.float64)
        free = bool(exact.open(domains).any()) or exact.smooth
        before, after = exact.bound(domains), improve(exact, domains, 20)[0]
        assert bool((after >= before).all()), "the best multipliers are kept"
        better += free * int((after > before + 1e-3).sum())
        same += free * int((after <= before + 1e-3).sum())
    assert better > same, "steps on the multipliers make bounds better"


def _counterexamples_stay() -> None:
    for model, region, points, spec, offset, margins in _networks():
        lowered = offset - margins.quantile(0.3, dim=0)
        network, _, collapsed = nets.collapsed(model, region, spec, lowered)
        if not collapsed.count:
            continue
        z, _ = nets.tap_values(network, collapsed, points)
        exact, domains = Dual(collapsed, torch.float64), root_domains(collapsed, torch.float64)
        negative = margins - offset + lowered <= 0
        taps = torch.arange(collapsed.count)
        columns = domains.select(torch.zeros(collapsed.count, dtype=torch.long))
        for gamma in (0.1, 1.0):  # any γ ≥ 0 will do, also one that no search would choose
            rows = tighten._plus(exact.tap_rows(taps), torch.full((len(taps),), gamma).double(), exact.rows(columns))
            assert bool((exact.bound(columns, rows)[:, None] <= z[:, negative[:, 0]] + ROUNDING).all())
        for i in range(len(domains)):
            domain = domains.select(torch.tensor([i]))
            starts: tighten.Starts = {}
            for _ in range(2):
                tighten.tighten(exact, exact, domain, taps, 6, starts)
            clip.Forms(collapsed, exact, domain.exactly()).clip(domain, exact.bounded(domain.exactly()))
            clip.clip_by_own_forms(exact, domain, exact.bounded(domain.exactly()), taps)
            here = z[:, negative[:, i]]
            assert bool((here >= domain.lower - ROUNDING).all())
            assert bool((here <= domain.upper + ROUNDING).all())


def _boxes_are_bounded() -> None:
    """Halves of halves of the region: their bounds hold at points, and no point with a negative margin is clipped off."""
    for model, region, points, spec, offset, margins in _networks():
        lowered = offset - margins.quantile(0.3, dim=0)
        network = Network.from_module(model, region.lower.shape)
        x = network.inside(points).flatten(1)
        lower, upper = (network.inside(t[None]).flatten(1) for t in (region.lower, region.upper))
        for turn in range(3):
            found = box_bounds.BoxBounds(network, lower, upper, Sizes(network))
            inside = ((x[:, None] >= lower) & (x[:, None] <= upper)).all(2)
            values = network.values(points)
            for i, (low, high) in found.found.bounds.items():
                z = values[network.nodes[i].inputs[0]].flatten(1)[:, None]
                holds = ((z >= low.flatten(1) - ROUNDING) & (z <= high.flatten(1) + ROUNDING)).all(2)
                assert bool((holds | ~inside).all())
            below, rows, _ = found.functions(len(network.nodes) - 1, spec, lowered)
            here = margins - offset + lowered
            assert bool(((here[:, None] >= below - ROUNDING).all(2) | ~inside).all())
            open_ = torch.ones_like(below, dtype=torch.bool)
            low, high = halfspaces.clipped(lower, upper, below[:, :, None], rows[:, :, None], open_)
            stays = ((x[:, None] >= low) & (x[:, None] <= high)).all(2)
            assert bool((stays | ~inside | (here > 0).all(1)[:, None]).all())
            # both margins at most their larger one, as if that were what is asked
            parts = below[:, None], rows[:, None]
            together, row, _ = halfspaces.combined(*parts, found.radius)
            least = (row.clamp(min=0) * lower[:, None] + row.clamp(max=0) * upper[:, None]).sum(2)
            above = torch.einsum("pn,bln->pbl", x, row) - least
            assert bool(((here.amax(1)[:, None, None] >= together + above - ROUNDING)[:, :, 0] | ~inside).all())
            widest = torch.full((len(lower),), turn % x.shape[1])
            widest = torch.where(
                (upper - lower).gather(1, widest[:, None])[:, 0] > 0, widest, (upper - lower).argmax(1)
            )
            lower, upper = boxes.halves(lower, upper, widest)
            assert bool(((x[:, None] >= lower) & (x[:, None] <= upper)).all(2).any(1).all())


def _boxes_prove_what_is_true() -> None:
    """Without attacks: verified if the exact minimum is above 0, never if it is below."""
    for seed in range(3):
        model, shape = nets.vector(seed, hidden=(6, 5))
        region, spec = nets.box(shape, seed, 0.8), nets.margins(seed % 3)[:1]
        exact = Oracle(model, region)
        lowest = exact.minimum(exact.margin(spec[0])).value
        network = Network.from_module(model, shape)
        for share in (0.02, -0.02):
            offset = torch.tensor([share - lowest], dtype=torch.float64)
            start = boxes.Boxes.whole(region.lower, region.upper, 1)
            search = boxes.BoxSearch(network, Sizes(network), spec, offset, start, lambda _: None)
            calls = iter(range(60))
            try:
                proven = search.run(Budget(20), lambda c=calls: next(c, None) is None)
            except Exhausted:
                proven = False
            assert proven == (share > 0)


def _verdicts_are_exact() -> None:
    """Margins whose exact minimum is a bit above 0 or a bit below."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verifier, "FEW_INPUTS", 0)  # the search over neurons alone
        _verdicts_of_neurons()


def _verdicts_of_neurons() -> None:
    for seed in range(3):
        model, shape = nets.vector(seed, hidden=(6, 5))
        region, spec = nets.box(shape, seed, 0.8), nets.margins(seed % 3)[:1]
        exact = Oracle(model, region)
        best = exact.minimum(exact.margin(spec[0]))
        for share in (0.02, -0.02):
            offset = torch.tensor([share - best.value], dtype=torch.float64)
            result = nets.verify(model, region, spec, offset, double=True, timeout=20)
            assert result.verdict == ("verified" if share > 0 else "falsified")
            if result.verdict == "falsified":
                witness = result.witness.double()
                assert bool(((witness >= region.lower) & (witness <= region.upper)).all())
                assert float(model(witness[None])[0].detach() @ spec[0] + offset) < 1e-5


def _search_alone_is_exact() -> None:
    """The same without any attack: what the search proves must be true, and what is true it must prove."""

    def nothing(*_: Any, **__: Any) -> None:
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Falsifier, "descend", nothing)
        patch.setattr(verifier, "FEW_INPUTS", 0)  # the search over neurons alone
        for seed in range(4):
            model, shape = nets.vector(seed, hidden=(5, 4))
            region, spec = nets.box(shape, seed, 0.8), nets.margins(seed % 3)[:1]
            exact = Oracle(model, region)
            lowest = exact.minimum(exact.margin(spec[0])).value
            for share in (0.02, -0.02):
                offset = torch.tensor([share - lowest], dtype=torch.float64)
                result = nets.verify(model, region, spec, offset, double=True, timeout=20)
                assert (result.verdict == "verified") == (share > 0)


def _checks() -> None:
    _bounds_hold()
    _spans_hold()
    _bounds_are_crowns()
    _the_collapsed_network_is_the_network()
    _domains_are_bounded()
    _facets_are_bounds()
    _multipliers_help()
    _counterexamples_stay()
    _verdicts_are_exact()
    _search_alone_is_exact()


def _box_checks() -> None:
    _boxes_are_bounded()
    _boxes_prove_what_is_true()


def test_the_checks_pass() -> None:
    _checks()
    _box_checks()


# --- the mutations --------------------------------------------------------------------------------------------------

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, Mutation] = {}


def _mutation(name: str) -> Callable[[Mutation], Mutation]:
    def register(mutation: Mutation) -> Mutation:
        MUTATIONS[name] = mutation
        return mutation

    return register


def _wrap(patch: pytest.MonkeyPatch, owners: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace `name` in every owner by a function that gets the original and its arguments."""
    owners = owners if isinstance(owners, tuple) else (owners,)
    original = getattr(owners[0], name)
    for owner in owners:
        patch.setattr(owner, name, lambda *a, **k: change(original, *a, **k))


def _flipped(lines: Lines, field: str) -> Lines:
    return lines._replace(**{field: -getattr(lines, field)})


for _field in ("lower_slope", "upper_slope", "upper_intercept"):

    @_mutation(f"ReLU: {_field}")
    def _(patch: pytest.MonkeyPatch, field: str = _field) -> None:
        _wrap(patch, (relu, dual), "relax_relu", lambda f, *a: _flipped(f(*a), field))
        patch.setitem(KNOWN, "relu", replace(KNOWN["relu"], lines=relu.relax_relu))


for _field in Lines._fields:

    @_mutation(f"smooth: {_field}")
    def _(patch: pytest.MonkeyPatch, field: str = _field) -> None:
        for name in ("sigmoid", "tanh"):
            right = KNOWN[name].lines
            wrong = replace(KNOWN[name], lines=lambda *a, f=right: _flipped(f(*a), field))
            patch.setitem(KNOWN, name, replace(wrong, lines_at=wrong.lines))


for _field in Lines._fields:

    @_mutation(f"choice of smooth lines: {_field}")
    def _(patch: pytest.MonkeyPatch, field: str = _field) -> None:
        for name in ("sigmoid", "tanh"):
            right = KNOWN[name].lines_at
            wrong = replace(KNOWN[name], lines_at=lambda *a, f=right: _flipped(f(*a), field))
            patch.setitem(KNOWN, name, wrong)


@_mutation("choice of smooth lines: neighbours")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, relaxation, "mixed_at", lambda f, knots, alpha: f(knots, alpha) + alpha * (knots[-1] - knots[0]))


@_mutation("choice of smooth lines: gradient")
def _(patch: pytest.MonkeyPatch) -> None:
    right = relaxation.Relaxation.gradient
    patch.setattr(
        relaxation.Relaxation,
        "gradient",
        lambda self, *a: -right(self, *a) if self.knots is not None else right(self, *a),
    )


for _field in ("slope", "intercept"):

    @_mutation(f"grafted neurons: {_field} in CROWN")
    def _(patch: pytest.MonkeyPatch, field: str = _field) -> None:
        def wrong(f: Any, site: Any, *a: Any) -> Any:
            return f(replace(site, **{field: -getattr(site, field)}), *a)

        _wrap(patch, (bounds, box_bounds), "lines_of", wrong)


@_mutation("grafted neurons: line in intervals")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, (intervals, bounds), "through_site", lambda f, site, *a: f(replace(site, slope=-site.slope), *a))


@_mutation("CROWN: lower and upper lines")
def _(patch: pytest.MonkeyPatch) -> None:
    swapped = lambda f, lines: f({i: Lines(*line[2:], *line[:2]) for i, line in lines.items()})  # noqa: E731
    _wrap(patch, (crown, bounds), "relaxed", swapped)


@_mutation("CROWN: radius of the box")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, (crown, bounds), "lower_bound", lambda f, rows, c, center, radius: f(rows, c, center, -radius))


@_mutation("CROWN: center of the box")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, (crown, bounds), "lower_bound", lambda f, rows, c, center, radius: f(rows, c, -center, radius))


@_mutation("CROWN: upper bounds as lower bounds")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, (crown, bounds), "crown_bounds", lambda f, *a: tuple(-t for t in f(*a)))


for _field in ("weights", "constant"):
    for _function in ("_convolved", "_dense", "settled", "through_site"):

        @_mutation(f"unfolding: {_field} of {_function}")
        def _(patch: pytest.MonkeyPatch, field: str = _field, function: str = _function) -> None:
            def wrong(f: Any, *a: Any) -> Any:
                x = f(*a)
                return replace(x, **{field: -getattr(x, field)})

            where = (affine, unfolding) if hasattr(unfolding, function) else affine
            _wrap(patch, where, function, wrong)


@_mutation("unfolding: signs of a sum")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, node: Any, *a: Any) -> Any:
        x = f(node, *a)
        return replace(x, weights=-x.weights) if isinstance(node, nodes.Sum) else x

    _wrap(patch, (affine, unfolding), "through", wrong)


@_mutation("unfolding: scales")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, affine, "_scaled", lambda f, x, by, out: f(x, -by, out))


@_mutation("unfolding: what taps can be")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, x: Any, middle: Tensor, half: Tensor) -> Any:
        return f(x, -middle, half)

    _wrap(patch, (affine, unfolding), "spans", wrong)


@_mutation("unfolding: radius of spans")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, *a: Any) -> Any:
        center, radius = f(*a)
        return center, -radius

    _wrap(patch, (affine, unfolding), "spans", wrong)


@_mutation("substitution: lower and upper lines")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, *a: Any) -> Any:
        rows = f(*a)
        return replace(rows, lines=Lines(*rows.lines[2:], *rows.lines[:2]))

    _wrap(patch, (substitution, unfolding), "tap_rows", wrong)


for _field in ("value", "r"):

    @_mutation(f"substitution: {_field} of the taps")
    def _(patch: pytest.MonkeyPatch, field: str = _field) -> None:
        def wrong(f: Any, *a: Any) -> Any:
            rows = f(*a)
            return replace(rows, **{field: -getattr(rows, field)})

        _wrap(patch, (substitution, unfolding), "tap_rows", wrong)


@_mutation("substitution: radius of the box")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, *a: Any) -> Tensor:
        return f(*a[:-1], -a[-1])

    _wrap(patch, substitution, "_lowest", wrong)


@_mutation("substitution: λ of the taps")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, substitution.TapRows, "add", lambda f, self, a, slope, *rest: f(self, a, -slope, *rest))


@_mutation("substitution: taps that are dropped")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, substitution.TapRows, "add", lambda f, *a: None)


@_mutation("collapse: constants of given rows")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, *a: Any) -> Any:
        P, Q, r, loss = f(*a)
        return P, Q, -r, loss

    _wrap(patch, collapse._Collapse, "_given", wrong)


@_mutation("intervals: radius")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, (intervals, bounds), "through_linear", lambda f, *a: f(*a)[::-1])


@_mutation("intervals: margins")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, found: Any, *a: Any) -> Tensor:
        return f(replace(found, logits=found.logits[::-1]), *a)

    _wrap(patch, (bounds, verifier), "margin_intervals", wrong)
    patch.setitem(globals(), "margin_intervals", bounds.margin_intervals)


for _node in (nodes.Convolution, nodes.Dense, nodes.Scale, nodes.Gather, nodes.Sum):

    @_mutation(f"{_node.__name__}: coefficients of rows")
    def _(patch: pytest.MonkeyPatch, node: Any = _node) -> None:
        def wrong(f: Any, *a: Any) -> Any:
            parts, constant = f(*a)
            return [Rows(-part.coefficients, part.origin) for part in parts], constant

        _wrap(patch, node, "back", wrong)

    if _node not in (nodes.Gather, nodes.Sum):

        @_mutation(f"{_node.__name__}: constant of rows")
        def _(patch: pytest.MonkeyPatch, node: Any = _node) -> None:
            _wrap(patch, node, "back", lambda f, *a: (f(*a)[0], -f(*a)[1]))

    # what is only moved has its bounds moved
    @_mutation(f"{_node.__name__}: " + ("bounds" if _node is nodes.Gather else "spread of intervals"))
    def _(patch: pytest.MonkeyPatch, node: Any = _node) -> None:
        _wrap(patch, node, "forward" if node is nodes.Gather else "spread", lambda f, *a: -f(*a))


for _node in (nodes.Convolution, nodes.Dense):

    @_mutation(f"{_node.__name__}: constant of its neurons")
    def _(patch: pytest.MonkeyPatch, node: Any = _node) -> None:
        _wrap(patch, node, "neurons", lambda f, *a: (f(*a)[0], -f(*a)[1]))


@_mutation("max pooling: the larger of two")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, lowered_pooling, "_larger", lambda f, at, name, a, b: f(at, name, a, a))


@_mutation("subtraction")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, lowered_arithmetic, "_combine", lambda f, at, call, a, b, alpha, sign: f(at, call, a, b, alpha, -sign))


@_mutation("collapse: constants")
def _(patch: pytest.MonkeyPatch) -> None:
    def negated(f: Any, *a: Any) -> tuple[Tensor, Tensor]:
        constant, loss = f(*a)
        return -constant, loss

    _wrap(patch, collapse._Collapse, "_tap", negated)


@_mutation("collapse: coefficients on taps")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(
        patch,
        collapse._Pieces,
        "add",
        lambda f, self, rows, number: f(self, Rows(-rows.coefficients, rows.origin), number),
    )


@_mutation("dual: lower and upper lines")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, self: Dual, rows: Row, lines: Relaxed, *a: Any) -> Row:
        return f(self, rows, Relaxed(*lines[2:4], *lines[:2], lines.share), *a)

    _wrap(patch, Dual, "backward", wrong)


@_mutation("dual: sign of β")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, self: Dual, rows: Row, lines: Relaxed, push: Tensor | None, edge: Tensor | None = None) -> Row:
        return f(self, rows, lines, None if push is None else -push, edge)

    _wrap(patch, Dual, "backward", wrong)


@_mutation("dual: constant of the splits of smooth taps")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, (dual, ascent), "edge_of", lambda f, *a: -f(*a))


@_mutation("dual: radius of the box")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, *a: Any) -> Row:
        row = f(*a)
        return row._replace(c=row.c + 2 * row.p.abs().sum(0))

    _wrap(patch, Dual, "backward", wrong)


@_mutation("dual: constants of the taps")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, self: Dual, *a: Any) -> None:
        f(self, *a)
        self.r = -self.r

    _wrap(patch, Dual, "__init__", wrong)


@_mutation("dual: constants of the margins")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, Dual, "rows", lambda f, *a: (lambda row: row._replace(c=-row.c))(f(*a)))


@_mutation("multipliers: β below 0")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, self: Any, domains: Any, model: Dual) -> None:
        f(self, domains, model)
        if not model.smooth:
            self.adam.low, self.adam.high = -torch.inf, 0.0

    _wrap(patch, ascent.Beta, "__init__", wrong)


@_mutation("multipliers: direction of the ascent")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, self: Any, gradient: Tensor, rate: Any) -> None:
        self.low, self.high = (-1.0, 0.0) if self.high == 1 else (self.low, self.high)
        f(self, -gradient, rate)

    _wrap(patch, ascent.Adam, "ascend", wrong)


@_mutation("facets: constant")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, facets.Above, "facets", lambda f, *a: f(*a)._replace(g=-f(*a).g))


@_mutation("facets: coefficients")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, *a: Any) -> dual.Facets:
        G, g, used, on_taps = f(*a)
        opposite = [(0, matrix.Matrix.of_dense(-G.times(torch.eye(G.shape[1], dtype=g.dtype))))]
        return dual.Facets(matrix.Stack(opposite, *G.shape), g, used, on_taps)

    _wrap(patch, facets.Above, "facets", wrong)


@_mutation("facets: functions below instead of above")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, self: Any, some: Tensor, sign: float) -> tuple[Tensor, Tensor]:
        p, c = f(self, some, -sign)
        return -p, -c

    _wrap(patch, forms.Before, "below", wrong)


@_mutation("facets: share")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, dual.Dual, "shared", lambda f, *a: 2 * f(*a))


@_mutation("tightening: sign of γ")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, tighten, "_plus", lambda f, row, gamma, margin: f(row, -gamma, margin))


@_mutation("tightening: rows of the taps")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, Dual, "tap_rows", lambda f, *a: Row(*(-t for t in f(*a))))


@_mutation("tightening: lower and upper bounds")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, tighten, "_signed", lambda f, row, sign: f(row, -sign))


@_mutation("splits: signs")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = lambda f, *a: (lambda both: replace(both, split=-both.split))(f(*a))  # noqa: E731
    _wrap(patch, (branching, bab), "split", wrong)
    patch.setitem(globals(), "split", branching.split)


@_mutation("splits: one side twice")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, model: Dual, domains: Any, tap: Tensor) -> Any:
        both, count = f(model, domains, tap), len(domains)
        return both.select(torch.arange(count).repeat(2))

    _wrap(patch, (branching, bab), "split", wrong)
    patch.setitem(globals(), "split", branching.split)


@_mutation("leaves: sign of β")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, *a: Any) -> tuple:
        bound, beta, point = f(*a)
        return bound, -beta, point

    _wrap(patch, bab, "solve_leaf", wrong)


@_mutation("clipping: sign of γ")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clip, "GRID", tuple(-k for k in clip.GRID))


@_mutation("clipping: sign of the margin's row")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, clip.Forms, "clip", lambda f, self, domains, row: f(self, domains, row._replace(p=-row.p)))


@_mutation("clipping: rows of the taps")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, collapse.Collapsed, "up_to", lambda f, *a: (lambda c: replace(c, p=-c.p))(f(*a)))


@_mutation("clipping: norms")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, clip.Forms, "_norms", lambda f, *a: 0.5 * f(*a))


@_mutation("clipping by own forms: sign of the margin's row")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, exact: Any, domains: Any, row: Row, taps: Tensor) -> None:
        f(exact, domains, row._replace(p=-row.p), taps)

    _wrap(patch, clip, "clip_by_own_forms", wrong)


@_mutation("clipping by own forms: lines of other domains")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, exact: Any, domains: Any, row: Row, taps: Tensor) -> None:
        narrow = replace(domains, lower=domains.lower / 2, upper=domains.upper / 2)
        f(exact, narrow, row, taps)
        domains.lower.copy_(torch.maximum(domains.lower, narrow.lower))

    _wrap(patch, clip, "clip_by_own_forms", wrong)


@_mutation("attacks: sign of the margins")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, Falsifier, "margins", lambda f, *a: -f(*a))


@_mutation("attacks: the box")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, Region, "narrowed", lambda f, self: (self.lower.float() - 1, self.upper.float() + 1))


@_mutation("boxes: lower and upper lines")
def _(patch: pytest.MonkeyPatch) -> None:
    swapped = lambda f, lines, box: f({i: Lines(*line[2:], *line[:2]) for i, line in lines.items()}, box)  # noqa: E731
    _wrap(patch, box_bounds, "_relaxed", swapped)


@_mutation("boxes: lines of another box")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, box_bounds, "_relaxed", lambda f, lines, box: f(lines, box.flip(0)))


@_mutation("boxes: rows from below")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, *a: Any) -> Any:
        found = f(*a)
        return found._replace(rows=-found.rows)

    _wrap(patch, box_bounds.BoxBounds, "functions", wrong)


@_mutation("boxes: bounds from above")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, *a: Any) -> Any:
        found = f(*a)
        return found._replace(below=found.below + found.rows.abs().sum(2))

    _wrap(patch, box_bounds.BoxBounds, "functions", wrong)


@_mutation("boxes: one half lost")
def _(patch: pytest.MonkeyPatch) -> None:
    _wrap(patch, boxes, "halves", lambda f, *a: tuple(t[: len(t) // 2] for t in f(*a)))


@_mutation("boxes: clipped at the other side")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = lambda f, low, high, below, rows, open_: f(low, high, below, -rows, open_)  # noqa: E731
    _wrap(patch, (halfspaces, boxes), "clipped", wrong)


@_mutation("boxes: clipped by one margin for all")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = lambda f, low, high, b, rows, open_: f(low, high, b[:, :1], rows[:, :1], open_[:, :1])  # noqa: E731
    _wrap(patch, (halfspaces, boxes), "clipped", wrong)


@_mutation("boxes: combinations of functions")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = lambda f, below, rows, radius: f(below, rows, 3 * radius)  # noqa: E731
    _wrap(patch, (halfspaces, boxes), "combined", wrong)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_wrong_rule_is_noticed(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        MUTATIONS[name](patch)
        with pytest.raises((AssertionError, LingraftError)):
            (_box_checks if name.startswith("boxes: ") else _checks)()
