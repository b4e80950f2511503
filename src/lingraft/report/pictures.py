"""Images as data URIs."""

import base64
from io import BytesIO

import numpy as np
from PIL import Image
from torch import Tensor, uint8


def picture(image: Tensor) -> str | None:
    """A PNG as a data URI of an image in [0, 1] of shape (1, H, W) or (3, H, W); None for other shapes."""
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        return None
    pixels = (image.detach().cpu().clamp(0, 1) * 255).round().to(dtype=uint8).permute(1, 2, 0).numpy()
    shown = Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))
    buffer = BytesIO()
    shown.save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def magnified_difference(image: Tensor, witness: Tensor, eps: float) -> str | None:
    """What the witness changes, so that ±ε is white and black, no change mid-grey (per channel)."""
    return picture(0.5 + (witness - image) / (2 * eps)) if eps > 0 else None
