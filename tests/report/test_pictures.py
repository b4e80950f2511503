"""Images as data URIs."""

import base64
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from lingraft.report.browser import magnified_difference, picture


def decoded(uri: str | None) -> np.ndarray:
    assert uri is not None
    head, _, body = uri.partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(BytesIO(base64.b64decode(body))))


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_come_back(channels: int) -> None:
    pixels = torch.randint(0, 256, (channels, 6, 5), generator=torch.Generator().manual_seed(0))
    shown = decoded(picture(pixels.float() / 255))
    assert np.array_equal(shown.reshape(6, 5, channels), pixels.permute(1, 2, 0).numpy())


def test_other_shapes_have_no_picture() -> None:
    assert picture(torch.zeros(5)) is None
    assert picture(torch.zeros(2, 4, 4)) is None


def test_the_difference_is_magnified_to_black_and_white() -> None:
    image = torch.full((1, 1, 3), 0.5)
    witness = image + torch.tensor([[[-0.02, 0.0, 0.02]]])
    assert decoded(magnified_difference(image, witness, 0.02)).ravel().tolist() == pytest.approx([0, 128, 255], abs=1)
    assert magnified_difference(image, witness, 0.0) is None
