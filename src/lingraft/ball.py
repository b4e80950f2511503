"""Where attacks and proofs look: the ℓ∞ ball around a sample, cut to the range of values that samples can have.

The radius ε is a number, or has a number of its own for each feature, or for each sample; so have the ends of the
range. Whatever people write for them is read here, once.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lingraft.errors import LingraftError


class Values:
    """A tensor of numbers (float64, on the CPU) as a setting: it can be compared, has a name, and can be kept.

    `each` says whether its first axis counts samples; None: that is as its shape says.
    """

    def __init__(self, tensor: Tensor, each: bool | None = None):
        self.tensor, self.each = tensor.detach().cpu().double().clone(), each

    @cached_property
    def digest(self) -> str:
        """Changes with the shape and every number."""
        content = repr(tuple(self.tensor.shape)).encode() + self.tensor.contiguous().numpy().tobytes()
        return hashlib.sha256(content).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Values) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __format__(self, spec: str) -> str:
        """The lowest and the highest number, and some of the digest: a name that no other tensor has."""
        low, high = (float(end) for end in torch.aminmax(self.tensor))
        return f"{low:{spec}}…{high:{spec}} #{self.digest[:8]}"

    def __repr__(self) -> str:
        return format(self, ".6g")


#: ε as it is after reading: at least 0 and finite.
Radius = float | Values
#: Lowest and highest values of samples after reading; an end may be infinite. None: there are no limits.
Range = tuple[Radius, Radius] | None

#: What people may write for ε: 0.1, "2/255", a list or a tensor; see `radius`.
Eps = float | str | Sequence[Any] | Tensor | Values
#: What people may write for a range: (0, 255), a pair of tensors, None or "none" for no limits, and `GIVEN`.
Clip = tuple[Any, Any] | Sequence[Any] | str | None

#: The range of pixels, which is meant where nobody says another.
PIXELS: Range = (0.0, 1.0)
#: The range that the data say, or else the run, or else that of pixels.
GIVEN = "data"


def radius(eps: Any, *, alike: bool = False) -> Radius:
    """ε from whatever a person writes; NaN, negative or infinite numbers, and what is no number, are refused.

    `alike`: it is the same for all samples, so a tensor is about one of them.
    """
    found = _values(eps, "eps", "Write it like 0.1 or 2/255, or give a tensor with a number for each feature.")
    lowest = found if isinstance(found, float) else float(found.tensor.min())
    highest = found if isinstance(found, float) else float(found.tensor.max())
    if not (lowest >= 0 and math.isfinite(highest)):  # also false for NaN
        raise LingraftError(
            f"eps must be at least 0 and finite, not {found if isinstance(found, float) else lowest}:"
            " it is a distance in the values of the data, e.g. 2/255 for pixels of [0, 1]."
        )
    return Values(found.tensor, False) if alike and isinstance(found, Values) else found


def value_range(clip: Any) -> Range:
    """The range of values from whatever a person writes: a pair of numbers or tensors, "0,255", None or "none"."""
    how = "Write the lowest and the highest value, clip=(0, 255), tensors for each feature, or None for no limits."
    if clip is None or (isinstance(clip, str) and clip.strip().lower() == "none"):
        return None
    if isinstance(clip, str):
        clip = clip.split(",")
    try:
        low, high = clip
    except (TypeError, ValueError) as error:
        raise LingraftError(f"clip is {clip!r}. {how}") from error
    ends = _values(low, "clip", how), _values(high, "clip", how)
    lower, upper = (_tensor_of(end) for end in ends)
    try:
        rising = bool((lower <= upper).all() and (lower < upper).any())
    except RuntimeError as error:
        raise LingraftError(
            f"the ends of clip have the shapes {tuple(lower.shape)} and {tuple(upper.shape)}, which do not fit. {how}"
        ) from error
    if not rising:  # also for NaN
        raise LingraftError(f"clip is {shown(ends)}: its lowest value must be below its highest. {how}")
    return ends


def largest(eps: Radius) -> float:
    """The largest radius."""
    return eps if isinstance(eps, float) else float(eps.tensor.max())


def eps_name(eps: Radius) -> float | str:
    """A number as it is, a tensor by its name: what records say of ε. It tells different tensors apart."""
    return eps if isinstance(eps, float) else f"{eps:.6g}"


def shown(clip: Range) -> str:
    """A range in words; different ranges differ in them."""
    return "none" if clip is None else f"[{clip[0]:.6g}, {clip[1]:.6g}]"


def kept(value: Radius) -> Any:
    """ε or an end of a range as JSON, whole: `radius` and `value_range` read it back."""
    if isinstance(value, Values):
        return [kept(part) for part in _parts(value.tensor)] if value.tensor.ndim else kept(float(value.tensor))
    return value if math.isfinite(value) else str(value)


def kept_range(clip: Range) -> Any:
    """A range as JSON, whole."""
    return None if clip is None else [kept(end) for end in clip]


@dataclass(frozen=True)
class Ball:
    """All points within ε of a sample, coordinate by coordinate, and in the range of values."""

    eps: Radius
    clip: Range = PIXELS

    @classmethod
    def of(cls, eps: "Ball | Eps") -> "Ball":
        """A ball as it is; of anything else that ε may be, the ball of this radius among pixels of [0, 1]."""
        return eps if isinstance(eps, Ball) else cls(radius(eps))

    @classmethod
    def around(cls, eps: Eps, shape: Sequence[int], clip: Range = PIXELS) -> "Ball":
        """The ball around each of some samples, of `shape` (N, *sample) in all; what does not fit is refused.

        A tensor has the shape of one sample, or one that broadcasts to it, or of all samples, or (N,): a radius for
        each of them.
        """
        found = radius(eps)
        if isinstance(found, Values):
            found = _fitted(found, shape[0], tuple(shape[1:]))
        _require_fit(clip, tuple(shape[1:]))
        ball = cls(found, clip)
        ball.require_reach()
        return ball

    def at(self, index: slice | Tensor) -> "Ball":
        """That of some of the samples."""
        if not isinstance(self.eps, Values) or not self.eps.each:
            return self
        return Ball(Values(self.eps.tensor[index.cpu() if isinstance(index, Tensor) else index], True), self.clip)

    def bounds(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Lowest and highest allowed values, each of the shape of `images`, in their precision."""
        reach = self.reach(images)
        lower, upper = images - reach, images + reach
        if self.clip is None:
            return lower, upper
        lower, upper = (
            side.clamp_(**{end: _like(value, images)})
            for side, end, value in ((lower, "min", self.clip[0]), (upper, "max", self.clip[1]))
        )
        if self.clip == PIXELS:
            return lower, upper
        # a sample at the end of its range may have been rounded out of it; it is in its own ball all the same
        return torch.minimum(lower, images), torch.maximum(upper, images)

    def reach(self, images: Tensor, times: float = 1.0) -> Any:
        """ε, or a multiple of it: a number, or a tensor that broadcasts to `images`."""
        return times * _like(self.eps, images)

    def cut(self, points: Tensor) -> Tensor:
        """Points moved into the range of values, in place."""
        if self.clip is None:
            return points
        return points.clamp_(min=_like(self.clip[0], points)).clamp_(max=_like(self.clip[1], points))

    def scaled(self, part: float) -> "Ball":
        """With a part of the radius."""
        if isinstance(self.eps, float):
            return Ball(self.eps * part, self.clip)
        return Ball(Values(self.eps.tensor * part, self.eps.each), self.clip)

    def require_reach(self) -> None:
        """Refuse a radius that reaches beyond the range of every feature: it is in other units."""
        if self.clip is None:
            return
        width = _tensor_of(self.clip[1]) - _tensor_of(self.clip[0])
        if bool((_tensor_of(self.eps) > width).all()):
            what = "pixel range" if self.clip == PIXELS else "range of values"
            raise LingraftError(
                f"eps is {self.eps:g}, more than the whole {what} {shown(self.clip)}. For pixels of [0, 1] write e.g."
                " 2/255; for others give their clip."
            )


def require_inside(images: Tensor, clip: Range, what: str) -> None:
    """Refuse samples (N, *sample), `what` they are, with NaN or infinity, or outside the range of values.

    Ends are rounded as the samples are: one that is the highest of its data is in its range in any precision.
    """
    if not images.numel():
        return
    low, high = (float(value) for value in torch.aminmax(images))
    if not (math.isfinite(low) and math.isfinite(high)) and clip != PIXELS:
        raise LingraftError(f"{what} hold NaN or infinity. Repair the data.")
    if clip is None:
        return
    _require_fit(clip, tuple(images.shape[1:]))
    if all(isinstance(end, float) for end in clip):  # of large data sets, a pass less over them
        ends = [_tensor_of(end).to(images.dtype).item() for end in clip]
        if ends[0] <= low and high <= ends[1]:
            return
    inside = (images >= _tensor_of(clip[0]).to(images)) & (images <= _tensor_of(clip[1]).to(images))
    if bool(inside.all()):
        return
    reach = f"but these reach from {low:g} to {high:g}"
    if clip != PIXELS:
        first = int((~inside).flatten(1).any(1).nonzero()[0])
        raise LingraftError(
            f"{what} must lie in their range of values, clip={shown(clip)}, {reach}; the first outside is number"
            f" {first}. Give a wider clip, or clip=None for no limits."
        )
    if low >= 0 and 2 < high <= 255:
        raise LingraftError(
            f"{what} must lie in [0, 1], {reach}. Divide them by the highest value that a pixel can have (bytes: 255),"
            " images / 255, or give their range, clip=(0, 255), and ε in it."
        )
    raise LingraftError(
        f"{what} must lie in [0, 1], {reach}. Normalize in the first layer of the model"
        " (lingraft.model.zoo.Normalize), not in the data: ε is a distance in pixels. Of data that are no images give"
        " the range, clip=(low, high), or clip=None for no limits."
    )


def _require_fit(clip: Range, sample: tuple[int, ...]) -> None:
    """Refuse a range of other features than a sample has."""
    for end in clip or ():
        if isinstance(end, Values) and not _fits(end.tensor.shape, sample):
            raise LingraftError(
                f"the ends of clip have the shape {tuple(end.tensor.shape)}, but one sample has {sample}."
                " Give a number, or one for each feature."
            )


def _fitted(eps: Values, count: int, sample: tuple[int, ...]) -> Values:
    """ε that broadcasts to a sample or, if it says that it is about each of them, to all samples."""
    given = tuple(eps.tensor.shape)
    about_one = eps.each is not True and _fits(given, sample)
    about_each = eps.each is not False and (
        (len(given) == len(sample) + 1 and given[0] in (1, count) and _fits(given[1:], sample)) or given == (count,)
    )
    if about_one and about_each and count > 1:
        raise LingraftError(
            f"eps has the shape {given}, which may be a radius for each of {count} samples or for each feature. Write"
            f" {(count, *(1 for _ in sample))} for the samples, eps.view(-1{', 1' * len(sample)}), or {(1, *sample)}"
            " for the features, eps[None]."
        )
    if about_one:
        return Values(eps.tensor, False)
    if about_each:
        tensor = eps.tensor.view(-1, *(1 for _ in sample)) if given == (count,) else eps.tensor
        if tensor.shape[0] != count:  # one row for all
            return Values(tensor[0], False)
        return Values(tensor, True)
    if eps.each is False:
        raise LingraftError(
            f"eps has the shape {given}. Here it must be a number, or have one for each feature, shape {sample}; only"
            " verify and evaluate take a radius for each sample."
        )
    raise LingraftError(
        f"eps has the shape {given}, which fits neither one sample {sample} nor {count} samples {(count, *sample)}."
        " Give a number, or one for each feature."
    )


def _fits(given: Sequence[int], sample: Sequence[int]) -> bool:
    """Whether a tensor broadcasts to the shape of a sample."""
    if len(given) > len(sample):
        return False
    return all(own in (1, size) for own, size in zip(reversed(given), reversed(sample), strict=False))


def _values(given: Any, what: str, how: str) -> Radius:
    """A number or a tensor of them from what a person writes."""
    if isinstance(given, Values):
        return given
    try:
        if isinstance(given, str):
            return float(Fraction(given)) if "/" in given else float(given)
        if isinstance(given, bool):
            raise TypeError("neither yes nor no")
        if isinstance(given, int | float):
            return float(given)
        if isinstance(given, list | tuple):
            tensor = torch.tensor(_numbers(given), dtype=torch.float64)
        else:
            tensor = torch.as_tensor(given).detach().cpu()
        if tensor.dtype == torch.bool or tensor.is_complex() or not tensor.numel():
            raise TypeError(f"no numbers but {tensor.dtype}")
    except (TypeError, ValueError, RuntimeError, ZeroDivisionError, OverflowError) as error:
        raise LingraftError(f"{what} is {given!r}, which is not a number ({error}). {how}") from error
    return Values(tensor) if tensor.ndim else float(tensor)


def _numbers(given: Sequence[Any]) -> list[Any]:
    """A list in which texts, also fractions, are numbers."""
    return [
        _numbers(part) if isinstance(part, list | tuple) else float(Fraction(part) if "/" in str(part) else part)
        for part in given
    ]


def _parts(tensor: Tensor) -> list[Radius]:
    return [Values(part) if part.ndim else float(part) for part in tensor]


def _tensor_of(value: Radius) -> Tensor:
    return torch.tensor(value, dtype=torch.float64) if isinstance(value, float) else value.tensor


def _like(value: Radius, images: Tensor) -> Any:
    """A number as it is, a tensor where the images are and in their precision."""
    return value if isinstance(value, float) else value.tensor.to(images.dtype).to(images.device)
