"""The input box that a verdict is about."""

from dataclasses import dataclass

import torch
from torch import Tensor

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
    def ball(cls, image: Tensor, eps: float, clip: tuple[float, float] | None = (0.0, 1.0)) -> "Region":
        """The ℓ∞ ball of radius `eps` around an image, cut to the pixel range; computed in float64."""
        if not 0 <= eps < float("inf"):
            raise LingraftError(f"eps is {eps}; it must be a number ≥ 0, in pixels of [0, 1], e.g. 2/255.")
        if not bool(torch.isfinite(image).all()):
            raise LingraftError("an image holds NaN or infinity. Repair the data.")
        center = image.double()
        if clip is None:
            return cls(center - eps, center + eps)
        if bool((center < clip[0]).any() or (center > clip[1]).any()):
            raise LingraftError(
                f"an image has values outside the pixel range [{clip[0]}, {clip[1]}]. Scale it, or pass clip=None,"
                " or give lower and upper in the network's own input space."
            )
        return cls((center - eps).clamp(min=clip[0]), (center + eps).clamp(max=clip[1]))

    def narrowed(self) -> tuple[Tensor, Tensor]:
        """The largest float32 box inside the region: a float32 image in it lies in the region exactly.

        Where the region holds no float32 number at all, lower exceeds upper.
        """
        low, high = self.lower.float(), self.upper.float()
        infinity = torch.full_like(low, torch.inf)
        low = torch.where(low.double() < self.lower.double(), torch.nextafter(low, infinity), low)
        high = torch.where(high.double() > self.upper.double(), torch.nextafter(high, -infinity), high)
        return low, high
