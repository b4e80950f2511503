"""Whether a converted network computes what the model itself computes, within what rounding explains.

How much rounding changes a margin is measured: by the converted network in float32 against itself in float64, at the
same points, as it may be much at a few of them, where what is divided by is small. In another precision it is as much
more or less as the precision is coarser or finer.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from lingraft.errors import LingraftError
from lingraft.solver.region import Region

if TYPE_CHECKING:
    from lingraft.solver.network import Network

#: Points of a region that are compared, and how many more where the lowest margins are low.
POINTS, LOW_POINTS = 16, 4
#: A difference may be this many times the rounding that was measured, plus this many roundings of the largest term.
TIMES, ROUNDINGS = 16, 8
#: However much rounding there is: what a difference may be in parts of the largest term, or of 1 if that is larger.
MOST = 1e-3
#: Calls that make something of a tensor that depends on its values and is none, or has a shape that depends on them.
_VALUES = frozenset({
    "__array__", "__bool__", "__complex__", "__contains__", "__float__", "__index__", "__int__", "allclose", "equal",
    "is_nonzero", "item", "masked_select", "nonzero", "numpy", "tolist", "unique",
})  # fmt: skip


class Agreement:
    """Compares a model, in its own precision, with the network that it was converted to."""

    def __init__(self, model: nn.Module, network: "Network"):
        self.model, self.network = model, network
        self.single = network.to(torch.float32)

    @property
    def _parameter(self) -> Tensor:
        return next(self.model.parameters(), torch.zeros(()))

    def difference(self, points: Tensor, spec: Tensor, offset: Tensor) -> str | None:
        """What is wrong with the margins spec·logits + offset at points (N, *input_shape); None if nothing is."""
        points = points.to(self._parameter)
        fine = points.dtype == torch.float64
        with torch.no_grad(), _full_precision():
            own = _called(self.model, points).double()
            given, other = self._logits(points, fine), self._logits(points, not fine)
        if own.shape != given.shape:
            return f"the model gives {tuple(own.shape)}, expected logits of shape (N, classes)"
        spec, offset, eps = spec.to(given), offset.to(given), torch.finfo(points.dtype).eps
        rounding = float(((given - other) @ spec.t()).abs().max()) * eps / torch.finfo(torch.float32).eps
        largest = float((given.abs() @ spec.abs().t() + offset.abs()).max())
        rounding = rounding if math.isfinite(rounding) else 0.0  # more than float32 holds: it can not be measured
        allowed = TIMES * rounding + ROUNDINGS * eps * largest
        found = float(((own - given) @ spec.t()).abs().max())
        if not found <= allowed:
            return (
                f"the converted network does not reproduce the model's outputs: they differ by {found:.3g}, of which"
                f" rounding explains {allowed:.2g}"
            )
        if found > MOST * max(1.0, largest):
            return f"rounding changes what the model gives by {found:.3g}. Use a finer precision: model.double()"
        return None

    def _logits(self, points: Tensor, double: bool) -> Tensor:
        return self.network.forward(points.double()) if double else self.single.forward(points.float()).double()

    def in_region(
        self, region: Region, image: Tensor, spec: Tensor, offset: Tensor, *, seed: int = 0, low: bool = True
    ) -> str | None:
        """`difference` at an image, in the middle of its region, in corners and in between; with `low` also in those
        corners where margins are low."""
        lower, upper = (bound.to(self._parameter.device, torch.float64) for bound in (region.lower, region.upper))
        middle, generator = (lower + upper) / 2, torch.Generator().manual_seed(seed)
        share = torch.rand(POINTS, *middle.shape, generator=generator).to(middle)
        share[::2] = share[::2].round()
        points = lower + share * (upper - lower)
        points[0], points[1] = image, middle
        if low:
            lowest = torch.where(self._slopes(middle, spec.to(middle), offset.to(middle)) > 0, lower, upper)
            points = torch.cat([points, lowest])
        return self.difference(points, spec, offset)

    @torch.inference_mode(False)
    def _slopes(self, middle: Tensor, spec: Tensor, offset: Tensor) -> Tensor:
        """Gradients (K, *input_shape) of the lowest margins in the middle of a region."""
        with torch.enable_grad():
            point = middle.float().expand(LOW_POINTS, *middle.shape).clone().requires_grad_()
            margins = self.single.forward(point) @ spec.float().t() + offset.float()
            lowest = margins[0].detach().argsort()[:LOW_POINTS]
            chosen = margins[range(len(lowest)), lowest]
            (slopes,) = torch.autograd.grad(chosen.sum(), point)
        return slopes[: len(lowest)]


def require_agreement(model: nn.Module, network: "Network") -> None:
    """Refuse a network that gives other logits than the model on random inputs, pixels and others.

    Where the model gives no finite numbers, as a root does below 0, nothing is compared: regions may lie elsewhere.
    Refuse a model, too, that takes values out of tensors or changes itself whenever it is called.
    """
    agreement = Agreement(model, network)
    generator = torch.Generator().manual_seed(0)
    pixels, others = (draw(4, *network.input_shape, generator=generator) for draw in (torch.rand, torch.randn))
    points, before = torch.cat([3 * others, pixels]), _versions(model)
    watch = _Watch()
    with torch.no_grad(), watch:
        _called(model, points[:2].to(agreement._parameter))
    if watch.found is not None:
        raise LingraftError(
            f"forward takes values out of a tensor ({watch.found}), so that it may do something else for each image."
            " Compute with tensors throughout."
        )
    classes = network.nodes[-1].size
    with torch.no_grad(), _full_precision():
        own = _called(model, points.to(agreement._parameter))
    known = torch.isfinite(own).flatten(1).all(1) if len(own) == len(points) else slice(None)
    wrong = (
        agreement.difference(points[known], torch.eye(classes), torch.zeros(classes)) if len(points[known]) else None
    )
    if wrong is not None:
        raise LingraftError(f"{wrong}. Please report this model.")
    changed = [name for name, version in _versions(model).items() if version != before.get(name, version)]
    if changed:
        raise LingraftError(
            f"the model changes its own {changed[0]!r} whenever it is called. Take that out of forward."
        )


def _called(model: nn.Module, points: Tensor) -> Tensor:
    """What the model gives; it may change the points in place."""
    try:
        result = model(points.clone())
    except Exception as error:
        raise LingraftError(f"the model fails on a batch of {len(points)} inputs: {error}") from error
    if not isinstance(result, Tensor):
        raise LingraftError(
            f"the model gives a {type(result).__name__}. It must give one tensor of logits (N, classes)."
        )
    return result


def _versions(model: nn.Module) -> dict[str, int]:
    """How often each tensor that the model holds was changed."""
    found: dict[str, int] = {}
    for prefix, module in model.named_modules():
        for name, value in {**vars(module), **module._parameters, **module._buffers}.items():
            if isinstance(value, Tensor) and not isinstance(value, fx.Proxy) and not value.is_inference():
                found[f"{prefix}.{name}" if prefix else name] = value._version
    return found


class _Watch(TorchFunctionMode):
    """Notes whether a model takes values out of tensors, which no graph of tensor operations shows."""

    found: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _VALUES:
            self.found = name
        return func(*args, **(kwargs or {}))


@contextmanager
def _full_precision() -> Iterator[None]:
    """Without the shortcuts that torch may take in float32 products and convolutions."""
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions
