"""What is asked of the verifier: images, their regions and the margins to prove, checked before any work."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.ball import PIXELS, Ball, Clip, Eps, Radius, Range, radius, require_inside, value_range
from lingraft.errors import LingraftError
from lingraft.model.logits import logits
from lingraft.model.plain import plain
from lingraft.solver.agreement import Agreement
from lingraft.solver.branching import require_rule
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.verifier import Problem

#: C (K, outputs) and d (K,): every row of C·outputs + d must be positive. C (N, K, outputs), d (N, K) or both: of each
#: image its own.
Constraints = tuple[Any, Any]


@dataclass(frozen=True)
class Limits:
    """What one image may cost, and how it is verified; see `lingraft.verify`. `prove` keeps proofs in the results."""

    timeout: float = 300.0
    memory: float | None = None
    double: bool = False
    seed: int = 0
    prove: bool = False
    #: the rule by which domains are split; see `branching.py`
    branching: str = "smart"

    def __post_init__(self) -> None:
        require_rule(self.branching)
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise LingraftError(f"the time limit must be a number of seconds above 0, not {self.timeout}.")
        if self.memory is not None and not self.memory > 0:
            raise LingraftError(f"the memory limit must be above 0, not {self.memory}.")


class Request:
    """A model and the checked questions about it, one for each image.

    Its tensors are ordinary ones even where the caller is in inference mode: attacks need gradients.
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        model: nn.Module,
        images: Any,
        labels: Any,
        *,
        eps: Eps | None = None,
        lower: Any = None,
        upper: Any = None,
        clip: Clip = PIXELS,
        constraints: Constraints | None = None,
    ):
        self.clip: Range = value_range(clip)
        self.box = _box(eps, lower, upper)
        self.eps: Radius | None = None if eps is None else radius(eps)
        self.images = _images(images, self.box, self.clip)
        self.ball: Ball | None = None
        if self.eps is not None:
            require_inside(self.images, self.clip, "the images")
            self.ball = Ball.around(self.eps, self.images.shape, self.clip)
        # margins between logits are asked for, of which a last softmax and a single logit have none; constraints are
        # about what the model gives
        self.model = plain(model) if constraints is not None else logits(model, self.images.shape[1:])
        self.network = _network(self.model, self.images)
        self.classes = self.network.nodes[-1].size
        if self.classes < 2 and constraints is None:
            raise LingraftError(
                "the model has a single output, so there is no other class to compare a label with. Give two logits, or"
                " constraints=(C, d) on the output."
            )
        self.labels = _labels(labels, len(self.images), self.classes)
        if self.labels is None and constraints is None:
            raise LingraftError("there are no labels. Give the right class of every image, or constraints=(C, d).")
        #: C (N, K, outputs) and d (N, K), N = 1 where they are the same for all images
        self.constraints = None if constraints is None else _constraints(constraints, len(self.images), self.classes)

    def __len__(self) -> int:
        return len(self.images)

    def region(self, i: int) -> Region:
        """The region around image `i`."""
        if self.box is not None:
            return Region(self.box[0][i].clone(), self.box[1][i].clone())
        assert self.ball is not None
        return Region.within(self.ball.at(slice(i, i + 1)), self.images[i])

    def against(self, i: int) -> list[int]:
        """What each margin of image `i` is about: the class that the label is compared with, or the constraint."""
        if self.constraints is not None:
            return list(range(self.constraints[1].shape[1]))
        assert self.labels is not None
        return [j for j in range(self.classes) if j != self.labels[i]]

    def margins(self, i: int) -> tuple[Tensor, Tensor]:
        """spec (L, outputs) and offset (L,), float64: spec·outputs + offset must be positive."""
        if self.constraints is not None:
            spec, offset = self.constraints
            # clones: sent to a worker, a part of a tensor takes all of it along
            return spec[i if len(spec) > 1 else 0].clone(), offset[i if len(offset) > 1 else 0].clone()
        assert self.labels is not None
        others = self.against(i)
        spec = torch.zeros(len(others), self.classes, dtype=torch.float64)
        spec[:, self.labels[i]] = 1
        spec[range(len(others)), others] = -1
        return spec, torch.zeros(len(others), dtype=torch.float64)

    @torch.inference_mode(False)
    def problem(self, i: int) -> Problem:
        """The question about image `i`, on the model's device, sharing no memory with the images."""
        spec, offset = self.margins(i)
        region = self.region(i)
        region = Region(region.lower.to(self.device), region.upper.to(self.device))
        return Problem(self.images[i].clone().to(self.device), region, spec.to(self.device), offset.to(self.device))

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters(), torch.zeros(())).device

    @torch.no_grad()
    def replay(self, images: Tensor, which: Sequence[int]) -> list[float]:
        """The lowest margin that the model itself, in its own precision, gives each image; they belong to `which`."""
        parameter = next(self.model.parameters(), torch.zeros(()))
        logits = self.model(images.to(parameter, copy=True)).double().cpu()  # the model may change them in place
        if not bool(torch.isfinite(logits).all()):
            raise LingraftError("the model gives NaN or infinite outputs. Train it again, or check its weights.")
        lowest = []
        for row, i in zip(logits, which, strict=True):
            spec, offset = self.margins(i)
            lowest.append(float((spec @ row + offset).min()))
        return lowest

    @cached_property
    def _agreement(self) -> Agreement:
        return Agreement(self.model, self.network)

    @torch.inference_mode(False)
    def disagreement(self, i: int, low: bool = True) -> str | None:
        """Why what was proven of the network is not known of the model, in the region of image `i`; None if it is.

        `low`: look where margins are low, too.
        """
        return self._agreement.in_region(self.region(i), self.images[i], *self.margins(i), seed=i, low=low)

    def own_precision(self, image: Tensor) -> Tensor:
        """An image as the model sees it: in the type of its parameters."""
        parameter = next(self.model.parameters(), torch.zeros(()))
        return image.detach().cpu().to(parameter.dtype)


def _tensor(value: Any, what: str) -> Tensor:
    """A float32 or float64 copy on the CPU."""
    try:
        tensor = torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise LingraftError(
            f"{what} must be a tensor or an array, not {type(value).__name__}. data = lingraft.ImageSet.of(loader)"
            " takes them out of a DataLoader or Dataset: data.pixels(), data.labels."
        ) from error
    if not tensor.is_floating_point():
        raise LingraftError(f"{what} must be floating-point numbers, not {tensor.dtype}. Use .float().")
    if not bool(torch.isfinite(tensor).all()):
        raise LingraftError(f"{what} hold NaN or infinity. Repair the data.")
    return tensor.clone() if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def _box(eps: Eps | None, lower: Any, upper: Any) -> tuple[Tensor, Tensor] | None:
    """lower and upper (N, *shape) where they are given instead of eps."""
    if (eps is None) == (lower is None and upper is None) or (lower is None) != (upper is None):
        raise LingraftError("give either eps, the radius around every image, or both lower and upper.")
    if eps is not None:
        return None
    low, high = _tensor(lower, "lower"), _tensor(upper, "upper")
    if low.shape != high.shape:
        raise LingraftError(f"lower {tuple(low.shape)} and upper {tuple(high.shape)} differ in shape.")
    wrong = (low.double() > high.double()).flatten(1).any(1).nonzero().flatten().tolist() if low.dim() > 1 else []
    if wrong:
        raise LingraftError(f"lower exceeds upper in the region of image {wrong[0]}. Swap or repair the bounds.")
    return low, high


def _images(images: Any, box: tuple[Tensor, Tensor] | None, clip: Range) -> Tensor:
    """The images (N, *shape); the middle of their regions where only these are given. Bytes mean their 255th parts."""
    if images is None:
        if box is None:
            raise LingraftError("there are no images. Give a tensor (N, *shape).")
        return (box[0] + box[1]) / 2
    if str(getattr(images, "dtype", "")).endswith("uint8"):
        if box is not None or clip not in (PIXELS, None):
            raise LingraftError(
                "uint8 images mean values in [0, 1], their 255th parts. Leave out clip, or give images.float()."
            )
        images = torch.as_tensor(images).float() / 255
    tensor = _tensor(images, "the images")
    if tensor.dim() < 2:
        raise LingraftError(
            f"images must have the shape (N, C, H, W), tables (N, features), not {tuple(tensor.shape)}. A single sample"
            " is sample[None]."
        )
    if box is not None and box[0].shape != tensor.shape:
        raise LingraftError(
            f"images {tuple(tensor.shape)} and lower, upper {tuple(box[0].shape)} differ in shape."
            " Give one region for each image."
        )
    return tensor


def _network(model: nn.Module, images: Tensor) -> Network:
    try:
        return Network.from_module(model, images.shape[1:])
    except LingraftError as error:
        if images.dim() != 3:
            raise
        raise LingraftError(
            f"{error} (The images have the shape {tuple(images.shape)}; one image is image[None].)"
        ) from error


def _labels(labels: Any, count: int, classes: int) -> list[int] | None:
    if labels is None:
        return None
    tensor = torch.as_tensor(labels).detach().cpu()
    if tensor.dim() == 0 or tensor.shape != (count,):
        hint = " One-hot labels become class indices with labels.argmax(1)." if tensor.dim() == 2 else ""
        raise LingraftError(
            f"labels must have the shape ({count},), one for each image, not {tuple(tensor.shape)}.{hint}"
        )
    if count and (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool):
        raise LingraftError(f"labels must be whole numbers, the right classes, not {tensor.dtype}.")
    values: list[int] = tensor.long().tolist()
    for i, label in enumerate(values):
        if not 0 <= label < classes:
            raise LingraftError(
                f"label {label} of image {i} is out of range: the model has classes 0 to {classes - 1}."
            )
    return values


def _constraints(constraints: Constraints, count: int, outputs: int) -> tuple[Tensor, Tensor]:
    """C (N, K, outputs) and d (N, K), N being 1 or the number of images in either."""
    try:
        matrix, shift = constraints
    except (TypeError, ValueError) as error:
        raise LingraftError("constraints must be a pair (C, d), meaning C·logits + d > 0.") from error
    spec, offset = (torch.as_tensor(t).detach().cpu().double() for t in (matrix, shift))
    given = tuple(spec.shape), tuple(offset.shape)
    spec, offset = spec[None] if spec.dim() == 2 else spec, offset[None] if offset.dim() == 1 else offset
    fits = spec.dim() == 3 and offset.dim() == 2 and len(spec) in (1, count) and len(offset) in (1, count)
    if not fits or spec.shape[2] != outputs or not spec.shape[1] or offset.shape[1] != spec.shape[1]:
        raise LingraftError(
            f"constraints (C, d) must have the shapes (K, {outputs}) and (K,), or for each image its own"
            f" ({count}, K, {outputs}) and ({count}, K), not {given[0]} and {given[1]}."
        )
    if not bool(torch.isfinite(spec).all() and torch.isfinite(offset).all()):
        raise LingraftError("the constraints hold NaN or infinity. Repair them.")
    return spec, offset
