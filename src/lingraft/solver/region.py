"""The input box that a verdict is about."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.ball import PIXELS, Ball, Clip, Eps, radius, require_inside, value_range
from lingraft.errors import LingraftError


@dataclass(frozen=True)
class Region:
    """All images x with lower ≤ x ≤ upper, coordinate by coordinate; both of the shape of one image."""

    lower: Tensor
    upper: Tensor

    def __post_init__(self) -> None:
        if self.lower.shape != self.upper.shape:
            raise LingraftError(f"lower {tuple(self.lower.shape)} and upper {tuple(self.upper.shape)} differ in shape.")
        if not bool(torch.isfinite(self.lower).all() and torch.isfinite(self.upper).all()):
            raise LingraftError("a region must have finite bounds; found NaN or infinity.")
        if bool((self.lower > self.upper).any()):
            raise LingraftError("the region is empty: lower exceeds upper somewhere. Swap or repair the bounds.")

    @classmethod
    def ball(cls, image: Tensor, eps: Eps, clip: Clip = PIXELS) -> "Region":
        """The ℓ∞ ball of radius `eps` around an image, cut to the range of values; computed in float64.

        `eps` is a number, a text such as "2/255", or a tensor with a radius for each feature; `clip` a pair of numbers
        or of such tensors, or None for no limits.
        """
        if not bool(torch.isfinite(image).all()):
            raise LingraftError("an image holds NaN or infinity. Repair the data.")
        limits = value_range(clip)
        require_inside(image[None], limits, "the values of an image")
        return cls.within(Ball.around(radius(eps, alike=True), (1, *image.shape), limits), image)

    @classmethod
    def within(cls, ball: Ball, image: Tensor) -> "Region":
        """That of a ball around an image; computed in float64."""
        lower, upper = ball.bounds(image[None].double())
        return cls(lower[0], upper[0])

    def narrowed(self) -> tuple[Tensor, Tensor]:
        """The largest float32 box inside the region: a float32 image in it lies in the region exactly.

        Where the region holds no float32 number at all, lower exceeds upper.
        """
        low, high = self.lower.float(), self.upper.float()
        infinity = torch.full_like(low, torch.inf)
        low = torch.where(low.double() < self.lower.double(), torch.nextafter(low, infinity), low)
        high = torch.where(high.double() > self.upper.double(), torch.nextafter(high, -infinity), high)
        return low, high
