"""Random networks in float64 and eval mode, regions for them, and helpers to look into them."""

import copy
import operator
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from random_layers import OPERATIONS, Apply, Join, Shape, activation, randomize
from random_layers import operation as make_operation
from torch import Tensor, fx, nn

import lingraft
from lingraft.model.grafted_activation import GraftedActivation
from lingraft.model.sites import sites_of
from lingraft.model.tracing import trace
from lingraft.solver import affine
from lingraft.solver.bounds import SiteBounds, bound_sites
from lingraft.solver.budget import Budget
from lingraft.solver.collapse import Collapsed, collapse
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.request import Request
from lingraft.solver.verifier import Problem, Result, Verifier


def conv(seed: int, operation: str | None = None, kind: str = "relu", small: bool = False) -> tuple[nn.Module, Shape]:
    """A random convolutional network that uses `operation` (any if None) and activations of that kind."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    reused = activation(rng, kind)
    act = lambda: reused if rng.random() < 0.3 else activation(rng, kind)  # noqa: E731
    shape = (1, 3, rng.choice([2, 3])) if small else (rng.choice([1, 2, 3]), rng.choice([4, 5]), rng.choice([4, 6]))
    start, steps = shape, []
    sequence = [operation or rng.choice(OPERATIONS), "act", rng.choice(OPERATIONS), "act"]
    for name in ["conv", *sequence] if rng.random() < 0.7 else sequence:
        if name == "act":
            step = act()
        else:
            step = make_operation(rng, name, shape, act)
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
    return randomize(nn.Sequential(*steps, *head), seed), start


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
        steps += [nn.Linear(fan, out), activation(rng, kind)]
    return randomize(nn.Sequential(*steps, nn.Linear(hidden[-1], classes)), seed, gain), (inputs,)


def residual_vector(seed: int, inputs: int = 3, width: int = 4, sign: int = 1) -> tuple[nn.Module, Shape]:
    """A fully connected network with two residual blocks."""
    torch.manual_seed(seed)
    way = operator.add if sign > 0 else operator.sub
    block = lambda: Join(way, nn.Identity(), nn.Sequential(nn.Linear(width, width), nn.ReLU()))  # noqa: E731
    net = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), block(), block(), nn.Linear(width, 3))
    return randomize(net, seed, 1.5), (inputs,)


def max_pool(seed: int) -> tuple[nn.Module, Shape]:
    """A small convolutional network with max pooling."""
    torch.manual_seed(seed)
    pool = nn.MaxPool2d((2, 1), 2, (1, 0)) if seed % 2 else nn.MaxPool2d((3, 1), 1)
    net = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), pool, nn.Flatten(), nn.LazyLinear(3), nn.ReLU(), nn.Linear(3, 3))
    net(torch.zeros(1, 1, 4, 2))
    return randomize(net, seed, 1.5), (1, 4, 2)


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


def box(shape: Shape, seed: int, eps: float) -> Region:
    """A ball around a random image, not cut to the pixel range; some pixels may not move at all."""
    generator = torch.Generator().manual_seed(seed)
    center = torch.rand(shape, generator=generator).double()
    radius = eps * (torch.rand(shape, generator=generator) < 0.9).double()
    return Region(center - radius, center + radius)


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


def preactivations(model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """What the model's activations really get, by site name, recorded while torch runs the traced model."""
    return _Recorder(model).record(images)


def margins(label: int, classes: int = 3) -> Tensor:
    """Rows (classes − 1, classes): the label's logit minus every other."""
    rows = torch.eye(classes, dtype=torch.float64)[label] - torch.eye(classes, dtype=torch.float64)
    return rows[[i for i in range(classes) if i != label]]


def collapsed(model: nn.Module, region: Region, spec: Tensor, offset: Tensor) -> tuple[Network, SiteBounds, Collapsed]:
    """The converted network, its CROWN bounds, and what it collapses to."""
    network = Network.from_module(model, region.lower.shape)
    found = bound_sites(network, region, Budget())
    return network, found, collapse(network, found, spec, offset)


@contextmanager
def rows_only() -> Iterator[None]:
    """Bounds and collapse by rows that pass back, as for networks that are too large to unfold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(affine, "LIMIT", 0)
        yield


def tap_values(network: Network, collapsed: Collapsed, images: Tensor) -> tuple[Tensor, Tensor]:
    """z and h (T, N) of the taps at images, from the network's own values."""
    values = network.values(images)
    z, h = [images.new_zeros(0, len(images))], [images.new_zeros(0, len(images))]
    for taps in collapsed.taps:
        site = network.nodes[taps.site]
        z.append(values[site.inputs[0]].flatten(1)[:, taps.index].t())
        h.append(values[taps.site].flatten(1)[:, taps.index].t())
    return torch.cat(z), torch.cat(h)


def partly_negative(seed: int, kind: str, share: float, convolutional: bool = False) -> tuple[Any, ...]:
    """A margin that is negative at about that share of the points.

    Model, region, spec, offset, what it collapses to, and at points z (T, N) of the taps and margins (N,).
    """
    model, shape = conv(seed, None, kind) if convolutional else vector(seed, kind, hidden=(6, 5, 4))
    if seed % 3 == 0:
        model = grafted(model, shape, seed)
    region = box(shape, seed, 0.6)
    spec = margins(seed % 3)[:1]
    images = points(region, seed, 400, model)
    values = (model(images).detach() @ spec.t())[:, 0]
    offset = -values.quantile(share)[None]
    network, _, form = collapsed(model, region, spec, offset)
    return model, region, spec, offset, form, tap_values(network, form, images)[0], values + offset


def with_taps(seed: int, kind: str, eps: float, graft: bool) -> tuple:
    """A network with taps: itself collapsed, and points of its region with z, h (T, N) and margins (L, N)."""
    model, shape = vector(seed, kind, hidden=(7, 6, 5)) if seed % 2 else conv(seed, None, kind)
    if graft:
        model = grafted(model, shape, seed)
    region = box(shape, seed, eps)
    generator = torch.Generator().manual_seed(seed)
    spec, offset = (torch.randn(*size, generator=generator).double() for size in [(3, 3), (3,)])
    network, _, form = collapsed(model, region, spec, offset)
    images = points(region, seed, 150, model)
    z, h = tap_values(network, form, images)
    return form, z, h, (model(images).detach() @ spec.t() + offset).t()


def branchy(seed: int, above: float, activation: type[nn.Module] = nn.ReLU, width: int = 40) -> Request:
    """Is a margin positive, whose lowest value at many corners of the region is `above`? That takes many domains."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(8, width), activation(), nn.Linear(width, width), activation(), nn.Linear(width, 2)
    ).eval()
    image = torch.full((1, 8), 0.5)
    corners = (torch.rand(20000, 8) < 0.5).float()
    with torch.no_grad():
        spec = torch.tensor([[1.0, -1.0]])
        lowest = (model(corners) @ spec.t()).min()
    return Request(model, image, None, eps=0.5, constraints=(spec, (above - lowest)[None]))


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
        self.names = {node.name: site.name for node, site in sites_of(traced).items()}
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
