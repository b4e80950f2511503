"""Random networks of every supported operation, and an oracle that finds exact minima without the verifier.

The oracle shares only the traced graph with the verifier. Every affine call is executed by torch itself, on a batch
whose first entry holds the constants and whose other entries hold the coefficients of one variable each; activations
become mixed-integer constraints, and HiGHS minimizes.
"""

import copy
import operator
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor, fx, nn

import lingraft
from lingraft.model.grafted_activation import GraftedActivation
from lingraft.model.sites import calls
from lingraft.model.tracing import trace
from lingraft.solver.bounds import SiteBounds, bound_sites
from lingraft.solver.budget import Budget
from lingraft.solver.collapse import Collapsed, collapse
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.verifier import Problem, Result, Verifier

Shape = tuple[int, ...]


# --- building blocks ----------------------------------------------------------------------------------------------


class Apply(nn.Module):
    """A function of one tensor as a layer; traced into, so the verifier sees the function's own calls."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Join(nn.Module):
    """Several branches of the same input, put together by a function of their outputs."""

    def __init__(self, function: Callable[..., Tensor], *branches: nn.Module):
        super().__init__()
        self.function, self.branches = function, nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(*[branch(x) for branch in self.branches])


class Affine(nn.Module):
    """Per-channel scale and shift, written in one of several ways."""

    def __init__(self, shape: Shape, way: int):
        super().__init__()
        size = (shape[0],) + (1,) * (len(shape) - 1)
        self.register_buffer("scale", 0.5 + torch.rand(size))
        self.register_buffer("shift", torch.randn(size) / 4)
        self.way = way % 6

    def forward(self, x: Tensor) -> Tensor:
        scale, shift = self.scale, self.shift
        if self.way == 0:
            return x * scale + shift
        if self.way == 1:
            return (x - shift) / scale
        if self.way == 2:
            return shift - scale * x
        if self.way == 3:
            return torch.sub(shift, torch.neg(x), alpha=1.5)
        if self.way == 4:
            return torch.add(x, shift, alpha=-0.5).mul(0.7)
        return -x + 0.3


def _activation(rng: random.Random, kind: str) -> nn.Module:
    choices: dict[str, list[Callable[[], nn.Module]]] = {
        "relu": [
            nn.ReLU,
            lambda: nn.ReLU(inplace=True),
            lambda: Apply(F.relu),
            lambda: Apply(torch.relu),
            lambda: Apply(lambda x: x.relu()),
        ],
        "leaky": [lambda: nn.LeakyReLU(rng.uniform(-0.3, 1.4)), lambda: Apply(lambda x: F.leaky_relu(x, 0.1))],
        "sigmoid": [nn.Sigmoid, lambda: Apply(torch.sigmoid)],
        "tanh": [nn.Tanh, lambda: Apply(lambda x: x.tanh())],
    }
    return rng.choice(choices[kind])()


def _conv(rng: random.Random, shape: Shape, out: int | None = None, same: bool = False) -> nn.Module:
    """A convolution with random settings that fits the map."""
    channels, height, width = shape
    if same:
        kernel = rng.choice([1, 2, 3])
        return nn.Conv2d(channels, out or channels, kernel, padding="same", dilation=rng.choice([1, 2]))
    groups = rng.choice([g for g in (1, 1, 2, 3) if channels % g == 0])
    out = out or groups * rng.choice([1, 2])
    kernel = rng.choice([1, 2, 3]), rng.choice([1, 2, 3])
    padding = rng.choice([0, 1]), rng.choice([0, 1, 2])
    dilation = rng.choice([1, 1, 2]), rng.choice([1, 1, 2])
    fits = [
        side + 2 * p >= d * (k - 1) + 1
        for side, p, d, k in zip((height, width), padding, dilation, kernel, strict=False)
    ]
    dilation = tuple(d if ok else 1 for d, ok in zip(dilation, fits, strict=False))
    kernel = tuple(k if ok else 1 for k, ok in zip(kernel, fits, strict=False))
    stride = rng.choice([1, 1, 2]), rng.choice([1, 2, 3])
    return nn.Conv2d(channels, out, kernel, stride, padding, dilation, groups, bias=rng.random() < 0.8)


def _pool(rng: random.Random, shape: Shape, largest: bool) -> nn.Module:
    _, height, width = shape
    kernel = min(height, rng.choice([2, 3])), min(width, rng.choice([1, 2]))
    padding = tuple(rng.choice([0, k // 2]) for k in kernel)
    stride = rng.choice([1, 2]), rng.choice([1, 2])
    if largest:
        dilation = (2 if height + 2 * padding[0] > 2 * (kernel[0] - 1) else 1, 1)
        return rng.choice([
            nn.MaxPool2d(kernel, stride, padding, dilation),
            Apply(lambda x: F.max_pool2d(x, kernel, stride, padding)),
        ])  # fmt: skip
    return rng.choice([
        nn.AvgPool2d(kernel, stride, padding),
        Apply(lambda x: F.avg_pool2d(x, kernel, stride, padding)),
        nn.AdaptiveAvgPool2d((rng.choice([d for d in range(1, height + 1) if height % d == 0]), width)),
        Apply(lambda x: F.adaptive_avg_pool2d(x, 1)),
    ])  # fmt: skip


def _move(rng: random.Random, shape: Shape) -> nn.Module:
    channels, height, width = shape
    size = channels * height * width
    return Apply(rng.choice([
        lambda x: x.permute(0, 2, 3, 1),
        lambda x: x.transpose(2, 3),
        lambda x: torch.permute(x, (0, 3, 1, 2)),
        lambda x: x[:, :, : max(1, height - 1)],
        lambda x: x[:, [0] + list(range(channels))],
        lambda x: x.reshape(x.size(0), height, channels, width),
        lambda x: x.unsqueeze(1).squeeze(1).reshape(x.shape[0], 1, size // width, width),
        lambda x: torch.flatten(x, 2).unsqueeze(1),
    ]))  # fmt: skip


def _pad(rng: random.Random) -> nn.Module:
    return rng.choice([
        nn.ZeroPad2d((1, 0, 0, 2)),
        Apply(lambda x: F.pad(x, (0, 1, 1, 0))),
        Apply(lambda x: F.pad(x, (1, -1, 0, 1))),
        Apply(lambda x: F.pad(x, (0, 0, 0, 0, 1, 0))),
    ])  # fmt: skip


def _residual(rng: random.Random, shape: Shape, act: Callable[[], nn.Module]) -> nn.Module:
    branch = nn.Sequential(_conv(rng, shape, same=True), act(), _conv(rng, shape, shape[0], same=True))
    skip = rng.choice([nn.Identity(), _conv(rng, shape, shape[0], same=True), Affine(shape, rng.randrange(6))])
    way = rng.choice([operator.add, operator.sub, lambda a, b: torch.add(a, b, alpha=1.7), lambda a, b: a.sub(b)])
    return Join(way, skip, branch)


def _concat(rng: random.Random, shape: Shape, act: Callable[[], nn.Module]) -> nn.Module:
    parts = [nn.Identity(), nn.Sequential(_conv(rng, shape, 1, same=True), act())]
    dim = rng.choice([1, 1, 2, -1]) if shape[0] == 1 else 1
    return Join(lambda *tensors: torch.cat(tensors, dim), *parts)


OPERATIONS = ("conv", "batch norm", "average", "maximum", "residual", "concat", "pad", "affine", "move", "identity")
KINDS = ("relu", "leaky", "sigmoid", "tanh")


def _operation(rng: random.Random, name: str, shape: Shape, act: Callable[[], nn.Module]) -> nn.Module:
    return {
        "conv": lambda: _conv(rng, shape),
        "batch norm": lambda: nn.BatchNorm2d(shape[0], affine=rng.random() < 0.8),
        "average": lambda: _pool(rng, shape, largest=False),
        "maximum": lambda: _pool(rng, shape, largest=True),
        "residual": lambda: _residual(rng, shape, act),
        "concat": lambda: _concat(rng, shape, act),
        "pad": lambda: _pad(rng),
        "affine": lambda: Affine(shape, rng.randrange(6)),
        "move": lambda: _move(rng, shape),
        "identity": lambda: rng.choice([nn.Identity(), nn.Dropout(0.4), Apply(lambda x: F.dropout(x, 0.3, False))]),
    }[name]()


# --- whole networks -------------------------------------------------------------------------------------------------


class Nets:
    """Builders of random networks, in float64 and eval mode, and helpers to look into them."""

    OPERATIONS, KINDS = OPERATIONS, KINDS

    @staticmethod
    def conv(
        seed: int, operation: str | None = None, kind: str = "relu", small: bool = False
    ) -> tuple[nn.Module, Shape]:
        """A random convolutional network that uses `operation` (any if None) and activations of that kind."""
        rng = random.Random(seed)
        torch.manual_seed(seed)
        reused = _activation(rng, kind)
        act = lambda: reused if rng.random() < 0.3 else _activation(rng, kind)  # noqa: E731
        shape = (1, 3, rng.choice([2, 3])) if small else (rng.choice([1, 2, 3]), rng.choice([4, 5]), rng.choice([4, 6]))
        start, steps = shape, []
        sequence = [operation or rng.choice(OPERATIONS), "act", rng.choice(OPERATIONS), "act"]
        for name in ["conv", *sequence] if rng.random() < 0.7 else sequence:
            if name == "act":
                step = act()
            else:
                step = _operation(rng, name, shape, act)
            probe = step.eval()(torch.zeros(1, *shape)).shape[1:]
            if min(probe) < 1 or probe.numel() > (12 if small else 150):
                step = nn.AdaptiveAvgPool2d(1)
                probe = shape[:1] + (1, 1)
            steps.append(step)
            shape = tuple(probe)
        size, hidden = int(np.prod(shape)), 3 if small else rng.choice([4, 6])
        head = [rng.choice([nn.Flatten(), Apply(lambda x: x.reshape(x.size(0), -1))]), nn.Linear(size, hidden)]
        if rng.random() < 0.4:
            head.append(nn.BatchNorm1d(hidden))
        head += [act(), nn.Linear(hidden, 3, bias=rng.random() < 0.8)]
        return _randomize(nn.Sequential(*steps, *head), seed), start

    @staticmethod
    def vector(
        seed: int,
        kind: str = "relu",
        inputs: int = 3,
        hidden: Sequence[int] = (6, 5),
        classes: int = 3,
        gain: float = 1.5,
    ) -> tuple[nn.Module, Shape]:
        """A random fully connected network."""
        rng = random.Random(seed)
        torch.manual_seed(seed)
        steps: list[nn.Module] = []
        for fan, out in zip([inputs, *hidden], hidden, strict=False):
            steps += [nn.Linear(fan, out), _activation(rng, kind)]
        return _randomize(nn.Sequential(*steps, nn.Linear(hidden[-1], classes)), seed, gain), (inputs,)

    @staticmethod
    def residual_vector(seed: int, inputs: int = 3, width: int = 4, sign: int = 1) -> tuple[nn.Module, Shape]:
        """A fully connected network with two residual blocks."""
        torch.manual_seed(seed)
        way = operator.add if sign > 0 else operator.sub
        block = lambda: Join(way, nn.Identity(), nn.Sequential(nn.Linear(width, width), nn.ReLU()))  # noqa: E731
        net = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), block(), block(), nn.Linear(width, 3))
        return _randomize(net, seed, 1.5), (inputs,)

    @staticmethod
    def max_pool(seed: int) -> tuple[nn.Module, Shape]:
        """A small convolutional network with max pooling."""
        torch.manual_seed(seed)
        pool = nn.MaxPool2d((2, 1), 2, (1, 0)) if seed % 2 else nn.MaxPool2d((3, 1), 1)
        net = nn.Sequential(
            nn.Conv2d(1, 2, 2), nn.ReLU(), pool, nn.Flatten(), nn.LazyLinear(3), nn.ReLU(), nn.Linear(3, 3)
        )
        net(torch.zeros(1, 1, 4, 2))
        return _randomize(net, seed, 1.5), (1, 4, 2)

    @staticmethod
    def grafted(model: nn.Module, shape: Shape, seed: int, share: float = 0.4) -> nn.Module:
        """The model with random neurons grafted, with slopes and intercepts of both signs."""
        generator = torch.Generator().manual_seed(seed)
        mask = {site.name: torch.rand(site.shape, generator=generator) < share for site in lingraft.sites(model, shape)}
        result = lingraft.graft(model, mask, input_shape=shape)
        for module in result.modules():
            if isinstance(module, GraftedActivation):
                with torch.no_grad():
                    module.slope.copy_(torch.randn(module.slope.shape, generator=generator))
                    module.intercept.copy_(torch.randn(module.intercept.shape, generator=generator) / 2)
        return result.eval()

    @staticmethod
    def box(shape: Shape, seed: int, eps: float) -> Region:
        """A ball around a random image, not cut to the pixel range; some pixels may not move at all."""
        generator = torch.Generator().manual_seed(seed)
        center = torch.rand(shape, generator=generator).double()
        radius = eps * (torch.rand(shape, generator=generator) < 0.9).double()
        return Region(center - radius, center + radius)

    @staticmethod
    def points(region: Region, seed: int, count: int = 64, model: nn.Module | None = None) -> Tensor:
        """Points of a region: its center, inner points, corners, and corners that push the model's outputs far."""
        generator = torch.Generator().manual_seed(seed)
        size = (count, *region.lower.shape)
        inner = torch.rand(size, generator=generator, dtype=torch.float64)
        corner = (torch.rand(size, generator=generator) < 0.5).double()
        where = torch.cat([torch.full_like(inner[:1], 0.5), inner, corner])
        points = region.lower + (region.upper - region.lower) * where
        if model is not None:
            start, copied = points.clone().requires_grad_(), copy.deepcopy(model)
            for module in copied.modules():
                module.inplace = False  # autograd refuses some of what runs in place
            outputs = copied(start)
            weights = torch.randn(outputs.shape, generator=generator, dtype=outputs.dtype)
            (gradient,) = torch.autograd.grad((outputs * weights).sum(), start, allow_unused=False)
            points = torch.cat([points, torch.where(gradient > 0, region.upper, region.lower)])
        return torch.minimum(torch.maximum(points, region.lower), region.upper).detach()

    @staticmethod
    def preactivations(model: nn.Module, images: Tensor) -> dict[str, Tensor]:
        """What the model's activations really get, by site name, recorded while torch runs the traced model."""
        return _Recorder(model).record(images)

    @staticmethod
    def margins(label: int, classes: int = 3) -> Tensor:
        """Rows (classes − 1, classes): the label's logit minus every other."""
        rows = torch.eye(classes, dtype=torch.float64)[label] - torch.eye(classes, dtype=torch.float64)
        return rows[[i for i in range(classes) if i != label]]

    @staticmethod
    def collapsed(
        model: nn.Module, region: Region, spec: Tensor, offset: Tensor
    ) -> tuple[Network, SiteBounds, Collapsed]:
        """The converted network, its CROWN bounds, and what it collapses to."""
        network = Network.from_module(model, region.lower.shape)
        found = bound_sites(network, region, Budget())
        return network, found, collapse(network, found, spec, offset)

    @staticmethod
    def tap_values(network: Network, collapsed: Collapsed, images: Tensor) -> tuple[Tensor, Tensor]:
        """z and h (T, N) of the taps at images, from the network's own values."""
        values = network.values(images)
        z, h = [images.new_zeros(0, len(images))], [images.new_zeros(0, len(images))]
        for taps in collapsed.taps:
            site = network.nodes[taps.site]
            z.append(values[site.inputs[0]].flatten(1)[:, taps.index].t())
            h.append(values[taps.site].flatten(1)[:, taps.index].t())
        return torch.cat(z), torch.cat(h)

    @classmethod
    def partly_negative(cls, seed: int, kind: str, share: float, conv: bool = False) -> tuple[Any, ...]:
        """A margin that is negative at about that share of the points.

        Model, region, spec, offset, what it collapses to, and at points z (T, N) of the taps and margins (N,).
        """
        model, shape = cls.conv(seed, None, kind) if conv else cls.vector(seed, kind, hidden=(6, 5, 4))
        if seed % 3 == 0:
            model = cls.grafted(model, shape, seed)
        region = cls.box(shape, seed, 0.6)
        spec = cls.margins(seed % 3)[:1]
        points = cls.points(region, seed, 400, model)
        values = (model(points).detach() @ spec.t())[:, 0]
        offset = -values.quantile(share)[None]
        network, _, collapsed = cls.collapsed(model, region, spec, offset)
        return model, region, spec, offset, collapsed, cls.tap_values(network, collapsed, points)[0], values + offset

    @staticmethod
    def verify(
        model: nn.Module,
        region: Region,
        spec: Tensor,
        offset: Tensor | None = None,
        timeout: float = 600,
        double: bool = False,
        image: Tensor | None = None,
    ) -> Result:
        """The complete verdict on spec·logits + offset > 0."""
        network = Network.from_module(model, region.lower.shape)
        image = (region.lower + region.upper) / 2 if image is None else image
        offset = torch.zeros(len(spec), dtype=torch.float64) if offset is None else offset
        return Verifier(network, double).verify(Problem(image, region, spec, offset), timeout)


class _Recorder(fx.Interpreter):
    """Runs a traced model and keeps what every activation gets."""

    def __init__(self, model: nn.Module):
        traced = trace(model)
        super().__init__(traced)
        self.names = {call.node.name: call.name for call in calls(traced)}
        self.seen: dict[str, Tensor] = {}

    def record(self, images: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            self.run(images)
        return self.seen

    def run_node(self, n: fx.Node) -> Any:
        if n.name in self.names:
            source = n.args[0] if n.args else n.kwargs["input"]
            self.seen[self.names[n.name]] = self.env[source].clone()  # type: ignore[index]
        return super().run_node(n)


def _randomize(model: nn.Module, seed: int, gain: float = 1.2) -> nn.Module:
    """Weights that leave many neurons unstable, and batch norm statistics that are not trivial."""
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                fan = module.weight[0].numel()
                module.weight.copy_(torch.randn(module.weight.shape, generator=generator) * gain / fan**0.5)
                if module.bias is not None:
                    module.bias.copy_(torch.randn(module.bias.shape, generator=generator) * 0.3)
            elif isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
                module.running_mean.copy_(torch.randn(module.running_mean.shape, generator=generator) / 3)
                module.running_var.copy_(0.3 + torch.rand(module.running_var.shape, generator=generator))
                if module.affine:
                    module.weight.copy_(torch.randn(module.weight.shape, generator=generator))
                    module.bias.copy_(torch.randn(module.bias.shape, generator=generator) / 3)
    return model.double().eval()


# --- the oracle -----------------------------------------------------------------------------------------------------


@dataclass
class Optimum:
    """Smallest value over the region as the solver sees it, and a point of the region that attains it."""

    value: float
    point: Tensor


@dataclass
class _Program:
    """A mixed-integer program under construction: bounds of variables, which are integer, and rows a·v within limits."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[int] = field(default_factory=list)
    rows: list[dict[int, float]] = field(default_factory=list)
    limits: list[tuple[float, float]] = field(default_factory=list)

    def variable(self, lower: float, upper: float, integer: bool = False) -> int:
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(int(integer))
        return len(self.lower) - 1

    def constrain(self, row: dict[int, float], lower: float, upper: float) -> None:
        self.rows.append(row)
        self.limits.append((lower, upper))


class Oracle(fx.Interpreter):
    """Exact minima of linear functions of the outputs, or of pre-activations, of a piecewise-linear model over a box.

    Inside, a value is a batch: entry 0 holds the constants, entry 1 + v the coefficients of variable v.
    """

    def __init__(self, model: nn.Module, region: Region):
        traced = trace(model)
        super().__init__(traced)
        self.model, self.region = model, region
        self.activations = {call.node.name: call for call in calls(traced)}
        self.program = _Program()
        #: pre-activations by site name
        self.sites: dict[str, Tensor] = {}
        with torch.no_grad():
            self.output = self.run(None)

    # one call of the graph

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "placeholder":
            return self._input()
        if n.op in ("get_attr", "output"):
            return super().run_node(n)
        call = self.activations.get(n.name)
        if call is not None:
            source = n.args[0] if n.args else n.kwargs["input"]
            result = self._activate(n, call, self._long(self.env[source]))  # type: ignore[index]
            if call.inplace:
                self.env[source] = result  # type: ignore[index]
            return result
        module = self.fetch_attr(str(n.target)) if n.op == "call_module" else None
        if isinstance(module, nn.MaxPool2d) or getattr(n.target, "__name__", "").startswith("boolean_dispatch"):
            return self._pool(n, module)
        if getattr(n.target, "__name__", "") == "max_pool2d":
            return self._pool(n, module)
        return self._affine(n)

    def _input(self) -> Tensor:
        lower, upper = self.region.lower.double(), self.region.upper.double()
        for low, high in zip(lower.flatten().tolist(), upper.flatten().tolist(), strict=True):
            self.program.variable(low, high)
        size = lower.numel()
        return torch.cat([torch.zeros(1, size), torch.eye(size)]).double().view(1 + size, *lower.shape)

    def _affine(self, n: fx.Node) -> Any:
        """Let torch compute the call on all entries at once, and take the constant part out of the coefficients."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        values = [a for a in _tensors((args, kwargs)) if self._is_value(a)]
        if not values:
            return getattr(self, n.op)(n.target, args, kwargs)
        rows = 1 + len(self.program.lower)
        longer = fx.node.map_aggregate((args, kwargs), lambda a: self._long(a) if self._is_value(a) else a)
        blank = fx.node.map_aggregate(longer, lambda a: torch.zeros_like(a) if self._is_value(a) else a)
        result = getattr(self, n.op)(n.target, *longer)
        if not isinstance(result, Tensor):
            return result
        zero = getattr(self, n.op)(n.target, *blank)
        assert result.shape[0] == rows, n
        return torch.cat([result[:1], result[1:] - zero[1:]])

    def _is_value(self, a: Any) -> bool:
        return isinstance(a, Tensor) and a.dim() > 1 and a.shape[0] > self.region.lower.numel()

    def _long(self, value: Tensor) -> Tensor:
        missing = 1 + len(self.program.lower) - len(value)
        return torch.cat([value, value.new_zeros(missing, *value.shape[1:])])

    # nonlinear calls

    def _range(self, column: Tensor) -> tuple[float, float]:
        """Interval of one value (1 + variables,)."""
        a = column[1:].numpy()
        lower, upper = np.array(self.program.lower[: len(a)]), np.array(self.program.upper[: len(a)])
        constant = float(column[0])
        return (
            constant + float(np.minimum(a * lower, a * upper).sum()),
            constant + float(np.maximum(a * lower, a * upper).sum()),
        )

    def _row(self, column: Tensor, scale: float = 1.0) -> dict[int, float]:
        places = column[1:].nonzero().flatten().tolist()
        return {v: scale * float(column[1 + v]) for v in places}

    def _relu(self, column: Tensor) -> Tensor:
        """max(value, 0) as a value of its own."""
        low, high = self._range(column)
        if low >= 0:
            return column
        if high <= 0:
            return torch.zeros_like(column)
        program, constant = self.program, float(column[0])
        h, on = program.variable(0.0, high), program.variable(0, 1, integer=True)
        minus = self._row(column, -1.0)
        program.constrain(minus | {h: 1.0}, constant, np.inf)  # h ≥ z
        program.constrain({h: 1.0, on: -high}, -np.inf, 0.0)  # h ≤ high·on
        program.constrain(minus | {h: 1.0, on: -low}, -np.inf, constant - low)  # h ≤ z − low·(1 − on)
        return self._unit(h)

    def _unit(self, variable: int) -> Tensor:
        unit = torch.zeros(1 + len(self.program.lower), dtype=torch.float64)
        unit[1 + variable] = 1
        return unit

    def _activate(self, n: fx.Node, call: Any, z: Tensor) -> Tensor:
        assert call.kind in ("relu", "leaky_relu"), "the oracle knows piecewise-linear activations only"
        self.sites[call.name] = z
        module = self.fetch_attr(str(n.target)) if n.op == "call_module" else None
        flat, results = z.flatten(1), []
        grafted = module.mask.flatten() if isinstance(module, GraftedActivation) else torch.zeros(flat.shape[1])
        for i in range(flat.shape[1]):
            column = flat[:, i]
            if grafted[i]:
                assert isinstance(module, GraftedActivation)
                line = column * float(module.slope.flatten()[i])
                line[0] += float(module.intercept.flatten()[i])
                results.append(line)
            else:
                bent, slope = self._relu(column), call.negative_slope
                results.append(slope * _pad_to(column, len(bent)) + (1 - slope) * bent)
        return self._stack(results, z.shape[1:])

    def _stack(self, columns: list[Tensor], shape: Sequence[int]) -> Tensor:
        rows = 1 + len(self.program.lower)
        return torch.stack([_pad_to(c, rows) for c in columns], dim=1).view(rows, *shape)

    def _pool(self, n: fx.Node, module: nn.Module | None) -> Tensor:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        value = self._long(args[0])
        pool = module or nn.MaxPool2d(*args[1:], **{k: v for k, v in kwargs.items() if k != "return_indices"})
        kernel, stride, padding, dilation = (
            (s, s) if isinstance(s, int) else s for s in (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
        )
        _, channels, height, width = value.shape
        size = [
            (side + 2 * p - d * (k - 1) - 1) // s + 1
            for side, k, s, p, d in zip((height, width), kernel, stride, padding, dilation, strict=False)
        ]
        results = []
        for c in range(channels):
            for y in range(size[0]):
                for x in range(size[1]):
                    window = [
                        (y * stride[0] - padding[0] + i * dilation[0], x * stride[1] - padding[1] + j * dilation[1])
                        for i in range(kernel[0])
                        for j in range(kernel[1])
                    ]
                    inside = [(a, b) for a, b in window if 0 <= a < height and 0 <= b < width]
                    results.append(self._largest([value[:, c, a, b] for a, b in inside]))
        return self._stack(results, (channels, *size))

    def _largest(self, columns: list[Tensor]) -> Tensor:
        ranges = [self._range(column) for column in columns]
        floor, top = max(low for low, _ in ranges), max(high for _, high in ranges)
        program = self.program
        m = program.variable(floor, top)
        chosen = []
        for column, (low, _) in zip(columns, ranges, strict=True):
            one = program.variable(0, 1, integer=True)
            minus = self._row(column, -1.0) | {m: 1.0}
            program.constrain(minus, float(column[0]), np.inf)
            program.constrain(minus | {one: top - low}, -np.inf, float(column[0]) + top - low)
            chosen.append(one)
        program.constrain(dict.fromkeys(chosen, 1.0), 1, 1)
        return self._unit(m)

    # questions

    def margin(self, spec: Tensor, offset: float = 0.0) -> Tensor:
        """The column of spec·outputs + offset, spec (classes,)."""
        column = self._long(self.output) @ spec
        column[0] += offset
        return column

    def minimum(self, column: Tensor, at_most_zero: Tensor | None = None) -> Optimum | None:
        """The smallest value of a column, where another one is ≤ 0 if given; None if that is nowhere."""
        program = self.program
        n = len(program.lower)
        column = _pad_to(column, 1 + n)
        rows, limits = list(program.rows), list(program.limits)
        if at_most_zero is not None:
            rows.append(self._row(at_most_zero))
            limits.append((-np.inf, -float(at_most_zero[0])))
        matrix = np.zeros((len(rows), n))
        for i, row in enumerate(rows):
            matrix[i, list(row)] = list(row.values())
        result = milp(
            column[1:].numpy(),
            integrality=np.array(program.integer),
            bounds=Bounds(np.array(program.lower), np.array(program.upper)),
            constraints=[LinearConstraint(matrix, *np.array(limits).T)] if rows else [],
            options={"mip_rel_gap": 0.0},
        )
        if result.status == 2:
            return None
        assert result.status == 0, result.message
        size = self.region.lower.numel()
        point = torch.from_numpy(result.x[:size]).view(self.region.lower.shape)
        point = torch.minimum(torch.maximum(point, self.region.lower), self.region.upper)
        return Optimum(float(result.fun) + float(column[0]), point)


def _pad_to(column: Tensor, rows: int) -> Tensor:
    return torch.cat([column, column.new_zeros(rows - len(column))])


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, dict):
        yield from _tensors(tuple(values.values()))
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _tensors(value)


@pytest.fixture(scope="session")
def nets() -> type[Nets]:
    """Builders of random networks."""
    return Nets


@pytest.fixture(scope="session")
def oracle() -> type[Oracle]:
    """Exact minima, found without the verifier."""
    return Oracle
