"""What can be asked: bad input and bad models are refused before any work."""

from typing import Any

import pytest
import torch
from torch import nn

import lingraft
from lingraft import LingraftError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": [0, 10]}, "label 10 of image 1 is out of range"),
        ({"labels": [0, -1]}, "label -1"),
        ({"labels": [0]}, r"shape \(2,\)"),
        ({"labels": torch.eye(2, 10)}, "argmax"),
        ({"labels": [0.0, 1.0]}, "whole numbers"),
        ({"labels": None}, "no labels"),
        ({"eps": -0.1}, "eps must be at least 0 and finite, not -0.1"),
        ({"eps": float("nan")}, "not nan"),
        ({"eps": [0.1, float("nan")]}, "not nan"),
        ({"eps": "much"}, "eps is 'much', which is not a number"),
        ({"eps": torch.full((3,), 0.1)}, r"fits neither one sample \(1, 8, 8\) nor 2 samples"),
        ({"eps": 8}, r"eps is 8, more than the whole pixel range \[0, 1\]"),
        ({"eps": 300, "clip": (0, 255)}, "eps is 300"),
        ({"eps": None}, "either eps"),
        ({"lower": torch.zeros(2, 1, 8, 8), "upper": torch.ones(2, 1, 8, 8)}, "either eps"),
        ({"eps": None, "lower": torch.zeros(2, 1, 8, 8)}, "both lower and upper"),
        ({"eps": None, "lower": torch.ones(2, 1, 8, 8), "upper": torch.zeros(2, 1, 8, 8)}, "lower exceeds upper"),
        ({"eps": None, "lower": torch.zeros(1, 1, 8, 8), "upper": torch.ones(1, 1, 8, 8)}, "one region for each image"),
        ({"eps": None, "lower": torch.zeros(2, 1, 8, 8), "upper": torch.ones(2, 1, 8, 7)}, "differ in shape"),
        (
            {"eps": None, "lower": torch.full((2, 1, 8, 8), torch.nan), "upper": torch.ones(2, 1, 8, 8)},
            "hold NaN",
        ),
        ({"images": torch.full((2, 1, 8, 8), 1.5)}, r"must lie in \[0, 1\], but these reach from 1.5 to 1.5"),
        ({"images": torch.full((2, 1, 8, 8), 255.0)}, r"images / 255, or give their range, clip=\(0, 255\)"),
        ({"images": torch.full((2, 1, 8, 8), 9.0), "clip": (0, 8)}, "the first outside is number 0.*clip=None"),
        ({"clip": (torch.zeros(7), torch.ones(7))}, r"ends of clip have the shape \(7,\)"),
        ({"images": torch.full((2, 1, 8, 8), torch.nan)}, "NaN"),
        ({"images": torch.zeros(2, 1, 8, 8, dtype=torch.int64)}, r"floating-point.*\.float\(\)"),
        ({"images": torch.zeros(2, 1, 8, 8, dtype=torch.uint8), "clip": (0, 255)}, "255th parts"),
        ({"eps": None, "lower": torch.zeros(2, 1, 8, 8).byte(), "upper": torch.ones(2, 1, 8, 8)}, "floating-point"),
        ({"images": torch.zeros(2, 1, 9, 9)}, "does not take images"),
        ({"images": torch.zeros(2, 3, 8, 8)}, r"does not take images of shape \(3, 8, 8\).*channels instead\.$"),
        ({"images": torch.zeros(1, 8, 8), "labels": [0]}, r"image\[None\]"),
        ({"images": torch.utils.data.DataLoader([0])}, "ImageSet.of"),
        ({"images": None}, "no images"),
        ({"clip": (1.0, 0.0)}, "clip"),
        ({"timeout": 0}, "time limit"),
        ({"timeout": float("inf")}, "time limit"),
        ({"memory": 0}, "memory limit"),
        ({"workers": -1}, "workers"),
        ({"constraints": torch.zeros(1, 10)}, "pair"),
        ({"constraints": (torch.zeros(1, 9), torch.zeros(1))}, r"\(K, 10\)"),
        ({"constraints": (torch.zeros(2, 10), torch.zeros(1))}, r"\(K, 10\)"),
        ({"constraints": (torch.zeros(3, 2, 10), torch.zeros(3, 2))}, r"\(2, K, 10\) and \(2, K\)"),
        ({"constraints": (torch.full((1, 10), torch.nan), torch.zeros(1))}, "NaN"),
    ],
)
def test_bad_input(digits_net: nn.Module, changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"images": torch.zeros(2, 1, 8, 8), "labels": [0, 1], "eps": 0.1, **changes}
    with pytest.raises(LingraftError, match=message):
        lingraft.verify(digits_net, **arguments)


def test_bad_models() -> None:
    images = torch.zeros(1, 4)
    linear = nn.Linear(4, 2)
    with pytest.raises(LingraftError, match="training mode"):
        lingraft.verify(linear.train(), images, [0], eps=0.1)
    with pytest.raises(LingraftError, match=r"bfloat16.*model\.float\(\)"):
        lingraft.verify(nn.Linear(4, 2).bfloat16().eval(), images, [0], eps=0.1)
    broken = nn.Linear(4, 2).eval()
    broken.weight.data[0, 0] = torch.nan
    with pytest.raises(LingraftError, match="NaN or infinite weights in 'weight'"):
        lingraft.verify(broken, images, [0], eps=0.1)
    with pytest.raises(LingraftError, match="Softsign"):
        lingraft.verify(nn.Sequential(linear, nn.Softsign()).eval(), images, [0], eps=0.1)
