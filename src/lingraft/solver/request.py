"""What is asked of the verifier: images, their regions and the margins to prove, checked before any work."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.errors import LingraftError
from lingraft.model.logits import logits
from lingraft.model.plain import plain
from lingraft.solver.agreement import Agreement
from lingraft.solver.branching import require_rule
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.verifier import Problem

#: C (K, classes) and d (K,): every row of C·logits + d must be positive.
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
        eps: float | None = None,
        lower: Any = None,
        upper: Any = None,
        clip: tuple[float, float] | None = (0.0, 1.0),
        constraints: Constraints | None = None,
    ):
        self.eps, self.clip = eps, clip
        self.box = _box(eps, lower, upper)
        self.images = _images(images, self.box)
        if self.box is None:
            _check_ball(self.images, eps, clip)
        # margins between logits are asked for, of which a last softmax and a single logit have none; constraints are
        # about what the model gives
        self.model = plain(model) if constraints is not None else logits(model, self.images.shape[1:])
        self.network = Network.from_module(self.model, self.images.shape[1:])
        self.classes = self.network.nodes[-1].size
        self.labels = _labels(labels, len(self.images), self.classes)
        if self.labels is None and constraints is None:
            raise LingraftError("there are no labels. Give the right class of every image, or constraints=(C, d).")
        self.constraints = None if constraints is None else _constraints(constraints, self.classes)

    def __len__(self) -> int:
        return len(self.images)

    def region(self, i: int) -> Region:
        """The region around image `i`."""
        if self.box is not None:
            return Region(self.box[0][i].clone(), self.box[1][i].clone())
        assert self.eps is not None
        return Region.ball(self.images[i], self.eps, self.clip)

    def against(self, i: int) -> list[int]:
        """What each margin of image `i` is about: the class that the label is compared with, or the constraint."""
        if self.constraints is not None:
            return list(range(len(self.constraints[1])))
        assert self.labels is not None
        return [j for j in range(self.classes) if j != self.labels[i]]

    def margins(self, i: int) -> tuple[Tensor, Tensor]:
        """spec (L, classes) and offset (L,), float64: spec·logits + offset must be positive."""
        if self.constraints is not None:
            return self.constraints
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
        raise LingraftError(f"{what} must be floating-point numbers, not {tensor.dtype}. Scale bytes by 1/255.")
    if not bool(torch.isfinite(tensor).all()):
        raise LingraftError(f"{what} hold NaN or infinity. Repair the data.")
    return tensor.clone() if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def _box(eps: float | None, lower: Any, upper: Any) -> tuple[Tensor, Tensor] | None:
    """lower and upper (N, *shape) where they are given instead of eps."""
    if (eps is None) == (lower is None and upper is None) or (lower is None) != (upper is None):
        raise LingraftError("give either eps, the radius around every image, or both lower and upper.")
    if eps is not None:
        if not (math.isfinite(eps) and eps >= 0):
            raise LingraftError(f"eps is {eps}; it must be a number ≥ 0, in pixels of [0, 1], e.g. 2/255.")
        return None
    low, high = _tensor(lower, "lower"), _tensor(upper, "upper")
    if low.shape != high.shape:
        raise LingraftError(f"lower {tuple(low.shape)} and upper {tuple(high.shape)} differ in shape.")
    wrong = (low.double() > high.double()).flatten(1).any(1).nonzero().flatten().tolist() if low.dim() > 1 else []
    if wrong:
        raise LingraftError(f"lower exceeds upper in the region of image {wrong[0]}. Swap or repair the bounds.")
    return low, high


def _images(images: Any, box: tuple[Tensor, Tensor] | None) -> Tensor:
    """The images (N, *shape); the middle of their regions where only these are given."""
    if images is None:
        if box is None:
            raise LingraftError("there are no images. Give a tensor (N, *shape).")
        return (box[0] + box[1]) / 2
    tensor = _tensor(images, "the images")
    if tensor.dim() not in (2, 4):
        raise LingraftError(
            f"images must have the shape (N, C, H, W) or (N, features), not {tuple(tensor.shape)}."
            + (" A single image is image[None]." if tensor.dim() == 3 else "")
        )
    if box is not None and box[0].shape != tensor.shape:
        raise LingraftError(
            f"images {tuple(tensor.shape)} and lower, upper {tuple(box[0].shape)} differ in shape."
            " Give one region for each image."
        )
    return tensor


def _check_ball(images: Tensor, eps: float | None, clip: tuple[float, float] | None) -> None:
    if clip is None:
        return
    low, high = clip
    if not low < high:
        raise LingraftError(f"clip is {clip}; it must be (lowest, highest) pixel value, or None.")
    if eps is not None and eps > high - low:
        raise LingraftError(
            f"eps is {eps:g}, more than the whole pixel range [{low:g}, {high:g}]. For pixels of [0, 1] write e.g."
            " 2/255; for others give their clip."
        )
    outside = ((images < low) | (images > high)).flatten(1).any(1).nonzero().flatten().tolist()
    if outside:
        raise LingraftError(
            f"image {outside[0]} has values outside the pixel range [{low:g}, {high:g}]. Scale it, or pass clip=None,"
            " or give lower and upper in the network's own input space."
        )


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


def _constraints(constraints: Constraints, classes: int) -> tuple[Tensor, Tensor]:
    try:
        matrix, shift = constraints
    except (TypeError, ValueError) as error:
        raise LingraftError("constraints must be a pair (C, d), meaning C·logits + d > 0.") from error
    spec, offset = (torch.as_tensor(t).detach().cpu().double() for t in (matrix, shift))
    if spec.dim() != 2 or spec.shape[1] != classes or not len(spec) or offset.shape != spec.shape[:1]:
        raise LingraftError(
            f"constraints (C, d) must have the shapes (K, {classes}) and (K,), not {tuple(spec.shape)} and"
            f" {tuple(offset.shape)}."
        )
    if not bool(torch.isfinite(spec).all() and torch.isfinite(offset).all()):
        raise LingraftError("the constraints hold NaN or infinity. Repair them.")
    return spec, offset
