"""Quadratic functions below rows over products: below at every point, exact where nothing is relaxed, tight tangents."""

from collections.abc import Callable

import pytest
import random_networks as nets
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.model.activations import KNOWN
from lingraft.solver import quadratic
from lingraft.solver.bounds import lines_of
from lingraft.solver.box_bounds import BoxBounds
from lingraft.solver.boxes import Boxes, BoxSearch, Maxima
from lingraft.solver.budget import UNLIMITED, Budget
from lingraft.solver.network import Network
from lingraft.solver.nodes import Dense, Input, Product, Site
from lingraft.solver.quadratic import Form, Quadratics, band
from lingraft.solver.rounding import Sizes

SEEDS = st.integers(0, 10**6)
ROUNDING = 1e-9


def _cube(count: int, inputs: int, seed: int) -> Tensor:
    """Points between −1 and 1, many of them on sides and corners."""
    generator = torch.Generator().manual_seed(seed)
    points = (4 * torch.rand(count, inputs, generator=generator, dtype=torch.float64) - 2).clamp(-1, 1)
    points[0] = 0
    return points


def _values(functions: Quadratics, t: Tensor) -> Tensor:
    """Of functions (N,) at points (P, m): (N, P)."""
    value, slopes, bend = functions
    return value[:, None] + slopes @ t.T + torch.einsum("pi,nij,pj->np", t, bend, t)


def _random(seed: int, convex: bool) -> Quadratics:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(6, 4, 4, generator=generator, dtype=torch.float64)
    bend = root @ root.transpose(1, 2) if convex else root + root.transpose(1, 2)
    scale = 10.0 ** torch.randint(-3, 3, (6,), generator=generator).double()
    value, slopes = (torch.randn(6, *m, generator=generator, dtype=torch.float64) for m in ((), (4,)))
    return Quadratics(value, slopes, scale[:, None, None] * bend)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, convex=st.booleans())
def test_tangents_are_below(seed: int, convex: bool) -> None:
    functions, t = _random(seed, convex), _cube(300, 4, seed)
    least, rows, delta = functions.tangents()
    line = least[:, None] + rows @ t.T + rows.abs().sum(1, keepdim=True)
    values, size = _values(functions, t), 1 + functions.bend.abs().sum((1, 2))[:, None]
    assert bool((line <= values + ROUNDING * size).all())
    assert bool((delta >= 0).all())
    if convex:
        assert float(delta.max()) < 1e-6 * float(size.max())


def test_tangents_of_convex_functions_touch_their_minimum() -> None:
    functions = _random(1, convex=True)
    least, _, _ = functions.tangents()
    t = torch.zeros(6, 4).double().requires_grad_()
    for _ in range(2000):  # projected gradient
        values = functions.value + (functions.slopes * t).sum(1) + torch.einsum("ni,nij,nj->n", t, functions.bend, t)
        (slope,) = torch.autograd.grad(values.sum(), t)
        step = 0.5 / functions.bend.abs().sum((1, 2))[:, None]
        t = (t - step * slope).clamp(-1, 1).detach().requires_grad_()
    assert bool((least <= values + ROUNDING).all())
    flat = functions.value - functions.slopes.abs().sum(1)
    assert bool((least >= flat - 1e-6).all())  # no worse than the tangent in the middle
    assert float(((values - least) / (values - flat)).detach().median()) < 0.2


def test_weighted_sums_are_sums() -> None:
    one, other, t = _random(2, True), _random(3, False), _cube(50, 4, 0)
    both = Quadratics(*(torch.stack(parts, 1) for parts in zip(one, other, strict=True)))
    shares = torch.rand(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = shares[:, :1] * _values(one, t) + shares[:, 1:] * _values(other, t)
    torch.testing.assert_close(_values(both.weighted(shares), t), expected)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_bands_hold_the_activation(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    ends = 4 * torch.randn(2, 40, 3, generator=generator, dtype=torch.float64)
    if not torch.isfinite(KNOWN[name].value(ends)).all():  # logarithms and roots
        ends = ends.abs() + 0.1
    lower, upper = ends.amin(0), ends.amax(0)
    grafted = torch.tensor([False, True, False])
    site = Site("z", (3,), [0], name, grafted, torch.full((3,), -0.7).double(), torch.full((3,), 0.2).double())
    found = band(site, lines_of(site, lower, upper), lower, upper)
    z = lower + (upper - lower) * torch.linspace(0, 1, 60).double()[:, None, None]
    over = torch.where(grafted, site.line(z), site.activation.value(z)) - found.slope * z - found.intercept
    assert bool((over >= -ROUNDING).all())
    assert bool((over <= found.height + ROUNDING).all())
    assert float(found.height[:, 1].max()) < ROUNDING


class Bent(nn.Module):
    """Products of products, behind and before activations, and squares of what they are made from."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 4), nn.Linear(5, 4), nn.Linear(9, 3)
        self.act = kind()
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        a = self.act(self.first(x))
        b = self.act(self.second(torch.cat([a[:, :2] * x[:, :2], x], 1)))
        return self.last(torch.cat([a * b, x * x, a[:, :2] * (b[:, :2] * b[:, 2:])], 1))


def _check_forms(network: Network, found: BoxBounds, t: Tensor) -> None:
    """The factors of products, at points t (P, 3) of each box."""
    assert found.curves is not None
    for b in range(len(found)):
        values = network.values(found.found.center[b] + found.radius[b] * t)
        for i, forms in found.curves.forms.items():
            product = network.nodes[i]
            assert isinstance(product, Product)
            for place, form in zip(product.factors(network.nodes), forms, strict=True):
                about = form.middle[b] + t[:, found.forward.moving] @ form.slopes[b].T
                assert bool(((values[place].flatten(1) - about).abs() <= form.error[b] + ROUNDING).all())


def _check(model: nn.Module, seed: int, eps: float, known: int = 0) -> None:
    """Functions of the outputs on the region and on parts of it: below at points, and so are their tangents.

    The last `known` inputs are no variables of the functions, however wide they are.
    """
    region = nets.box((3,), seed, eps)
    network = Network.from_module(model, (3,))
    source = network.nodes[0]
    assert isinstance(source, Input)
    source.known = known
    middle = (region.lower + region.upper) / 2
    lower = torch.stack([region.lower, middle, region.lower])
    upper = torch.stack([region.upper, region.upper, torch.minimum(region.upper, region.lower + 0.01)])
    found = BoxBounds(network, lower, upper, Sizes(network))
    last, spec = len(network.nodes) - 1, torch.cat([torch.eye(3), -torch.eye(3)]).double()
    box = torch.arange(3).repeat_interleave(len(spec))
    if found.curves is None:  # in every product a factor is fixed
        assert not any(found.moved[i] for i in found.planes)
    else:
        _check_forms(network, found, _cube(80, 3, seed))
        below = found.curves.below(last, spec.repeat(3, 1), torch.zeros(len(box)).double(), box, UNLIMITED)
    t = _cube(80, 3, seed)
    functions = found.functions(last, spec, torch.zeros(len(spec)).double())
    for b in range(3):
        x = found.found.center[b] + found.radius[b] * t
        with torch.no_grad():
            values = spec @ model(x).T
        if found.curves is not None:
            mine = Quadratics(*(part[box == b] for part in below))
            assert bool((_values(mine, t[:, found.forward.moving]) <= values + ROUNDING).all())
        least = functions.rows[b] @ found.found.center[b] - functions.rows[b].abs() @ found.radius[b]
        assert bool((functions.below[b][:, None] + functions.rows[b] @ x.T - least[:, None] <= values + ROUNDING).all())


@settings(max_examples=25, deadline=None)
@given(
    seed=SEEDS,
    eps=st.sampled_from([0.02, 0.3, 1.0]),
    kind=st.sampled_from([nn.ReLU, nn.Tanh, nn.LeakyReLU, nn.GELU]),
    graft=st.booleans(),
    known=st.integers(0, 1),
)
@example(seed=0, eps=0.02, kind=nn.ReLU, graft=False, known=0)  # a factor of every product is fixed
def test_functions_of_products_are_below(seed: int, eps: float, kind: type[nn.Module], graft: bool, known: int) -> None:
    torch.manual_seed(seed)
    model: nn.Module = Bent(kind).eval()
    if graft:
        model = nets.grafted(model, (3,), seed)
    _check(model, seed, eps, known)


def _no_error(patch: pytest.MonkeyPatch) -> None:
    right = Form.put

    def wrong(self: Form, *parts: Tensor) -> None:
        right(self, *parts)
        self.error[parts[0], parts[1]] = 0

    patch.setattr(Form, "put", wrong)


def _turned_slopes(patch: pytest.MonkeyPatch) -> None:
    right = Form.put

    def wrong(self: Form, *parts: Tensor) -> None:
        right(self, *parts)
        self.slopes[parts[0], parts[1]] *= -1

    patch.setattr(Form, "put", wrong)


def _no_band(patch: pytest.MonkeyPatch) -> None:
    def wrong(*parts: Tensor) -> quadratic.Band:
        found = band(*parts)  # type: ignore[arg-type]
        return found._replace(height=torch.zeros_like(found.height))

    patch.setattr(quadratic, "band", wrong)


def _other_end(patch: pytest.MonkeyPatch) -> None:
    def wrong(*parts: Tensor) -> quadratic.Band:
        found = band(*parts)  # type: ignore[arg-type]
        return found._replace(intercept=found.intercept + found.height)

    patch.setattr(quadratic, "band", wrong)


def _nothing_convex(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quadratic, "_convex", lambda bend: torch.zeros_like(bend[:, 0]))


def _check_some() -> None:
    for seed in range(6):
        torch.manual_seed(seed)
        _check(Bent(nn.ReLU).eval(), seed, 1.0)


def test_right_rules_pass() -> None:
    _check_some()


@pytest.mark.parametrize("wrong", [_no_error, _turned_slopes, _no_band, _other_end, _nothing_convex])
def test_wrong_rules_are_noticed(wrong: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        wrong(patch)
        with pytest.raises(AssertionError):
            _check_some()


class Falling(nn.Module):
    """x·Px, and how much it falls from x to A·x."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(3, 3, bias=False)
        self.shape = nn.Linear(3, 3, bias=False)
        with torch.no_grad():
            self.step.weight.copy_(torch.tensor([[0.9, 0.1, 0.0], [-0.1, 0.9, 0.0], [0.0, 0.1, 0.8]]))
            self.shape.weight.copy_(torch.tensor([[2.0, 0.3, 0.1], [0.3, 1.5, 0.0], [0.1, 0.0, 1.0]]))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        later = self.step(x)
        fall = ((x - later) * self.shape(x + later)).sum(1, keepdim=True)
        return torch.cat([fall, (x * self.shape(x)).sum(1, keepdim=True)], 1)


def test_quadratic_forms_are_known_exactly() -> None:
    network, model = Network.from_module(Falling().eval(), (3,)), Falling().eval()
    lower, upper = torch.tensor([[-1.0, 0.2, 0.0]]).double(), torch.tensor([[2.0, 0.5, 3.0]]).double()
    found = BoxBounds(network, lower, upper, Sizes(network))
    assert found.curves is not None
    box = torch.zeros(2, dtype=torch.long)
    below = found.curves.below(len(network.nodes) - 1, torch.eye(2).double(), torch.zeros(2).double(), box, UNLIMITED)
    t = _cube(40, 3, 0)
    with torch.no_grad():
        torch.testing.assert_close(_values(below, t), model(found.found.center[0] + found.radius[0] * t).T)


class Shell(nn.Module):
    """max(fall − least, 1 − V, V − 1.5), where fall and V are those of `Falling`: positive if V falls in a shell."""

    def __init__(self, least: float) -> None:
        super().__init__()
        self.form, self.rows = Falling(), nn.Linear(2, 3).double()
        with torch.no_grad():
            self.rows.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, -1.0], [0.0, 1.0]]))
            self.rows.bias.copy_(torch.tensor([-least, 1.0, -1.5]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.max_pool2d(self.rows(self.form(x)).view(-1, 1, 1, 3), (1, 3)).flatten(1)


def test_a_fall_in_a_shell_is_proven_if_it_is_true() -> None:
    """The least fall where 1 ≤ V ≤ 1.5 is an eigenvalue, for V = 1; without attacks."""
    form = Falling()
    with torch.no_grad():
        step, shape = form.step.weight, form.shape.weight
        root = torch.linalg.inv(torch.linalg.cholesky(shape))
        least = float(torch.linalg.eigvalsh(root @ (shape - step.T @ shape @ step) @ root.T)[0])
    assert least > 0
    for share, expected in ((0.97, True), (1.03, False)):
        network = Network.from_module(Shell(share * least).eval(), (3,))
        rows = next(i for i, n in enumerate(network.nodes) if isinstance(n, Dense) and n.weight.shape == (3, 2))
        whole = Boxes.whole(torch.full((3,), -1.3).double(), torch.full((3,), 1.3).double(), 1)
        maxima = Maxima(rows, torch.arange(3).view(1, 3))
        spec, offset = torch.ones(1, 1).double(), torch.zeros(1).double()
        search = BoxSearch(network, Sizes(network), spec, offset, whole, lambda _: None, maxima)
        turns = iter(range(25))
        assert search.run(Budget(), lambda c=turns: next(c, None) is None) == expected
        assert not expected or search.visited < 3000


class Turned(nn.Module):
    """A neuron whose coefficient is an input."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1] * torch.relu(x[:, 1:])


def test_a_line_between_is_paid_for_and_no_more() -> None:
    network = Network.from_module(Turned().eval(), (2,))
    ends = torch.ones(1, 2).double()
    found = BoxBounds(network, -ends, ends, Sizes(network))
    assert found.curves is not None
    last, none = len(network.nodes) - 1, torch.zeros(1).double()
    below = found.curves.below(last, ends[:, :1], none, none.long(), UNLIMITED)
    t = torch.cartesian_prod(*[torch.linspace(-1, 1, 5).double()] * 2)
    over = (network.forward(t)[:, 0] - _values(below, t)[0]).detach()
    assert float(over.min()) == pytest.approx(0, abs=ROUNDING)
