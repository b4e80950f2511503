"""ImageSet: what it takes, what it refuses, and what it gives."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lingraft import LingraftError
from lingraft.data import ImageSet


def example(count: int = 5) -> ImageSet:
    images = torch.arange(count * 12, dtype=torch.uint8).view(count, 3, 2, 2)
    return ImageSet(images, torch.arange(count))


def test_pixels_are_exactly_bytes_over_255():
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    pixels = ImageSet(images, torch.zeros(1, dtype=torch.int64)).pixels()
    expected = np.arange(256, dtype=np.float32) / np.float32(255)
    assert pixels.dtype == torch.float32
    np.testing.assert_array_equal(pixels.numpy().ravel(), expected)
    assert pixels.min() == 0
    assert pixels.max() == 1


def test_pixels_of_float_images_are_a_copy():
    data = ImageSet(torch.full((2, 1, 2, 2), 0.25), torch.tensor([0, 1]))
    data.pixels().zero_()
    assert torch.equal(data.images, torch.full((2, 1, 2, 2), 0.25))


def test_pixels_of_some():
    data = example()
    assert torch.equal(data.pixels(slice(1, 3)), data.images[1:3] / 255)
    assert torch.equal(data.pixels(torch.tensor([4, 0])), data.images[[4, 0]] / 255)


@given(st.integers(1, 5))
def test_take_a_number_is_the_first(count: int):
    taken = example().take(count)
    assert taken.labels.tolist() == list(range(count))
    assert torch.equal(taken.images, example().images[:count])


@given(st.slices(5))
def test_take_a_slice(which: slice):
    labels = torch.arange(5)
    if which.step is not None and which.step < 0:
        return  # torch has no backward slices
    if len(labels[which]) == 0:
        with pytest.raises(LingraftError, match="holds none"):
            example().take(which)
    else:
        assert torch.equal(example().take(which).labels, labels[which])


@pytest.mark.parametrize("count", [0, -1, 6])
def test_take_too_few_or_too_many(count: int):
    with pytest.raises(LingraftError, match="Ask for 1 to 5"):
        example().take(count)


BYTES = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
LABELS = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (BYTES[0], LABELS, "shape"),
        (BYTES[:0], LABELS[:0], "shape"),
        (BYTES[:, :, :0], LABELS, "shape"),
        (BYTES, LABELS[:1], "labels must have the shape"),
        (BYTES, LABELS[:, None], "labels must have the shape"),
        (BYTES, torch.eye(2, dtype=torch.int64), "labels.argmax(1)"),
        (BYTES.double(), LABELS, "float64"),
        (BYTES.long(), LABELS, "int64"),
        (BYTES, LABELS.int(), "labels.long"),
        (BYTES, LABELS.float(), "labels.long"),
        (BYTES, LABELS - 1, "-1"),
        (BYTES.float() - 0.01, LABELS, "[0, 1]"),
        (BYTES.float() + 1.01, LABELS, "[0, 1]"),
        (BYTES.float() + 200, LABELS, "bytes: 255"),
        (BYTES.float() * float("nan"), LABELS, "[0, 1]"),
        (BYTES.float() + float("inf"), LABELS, "[0, 1]"),
        (BYTES.to("meta"), LABELS, "same device"),
    ],
)
def test_refuses(images: torch.Tensor, labels: torch.Tensor, message: str):
    with pytest.raises(LingraftError) as caught:
        ImageSet(images, labels)
    assert message in str(caught.value)


def test_one_bad_pixel_is_found():
    images = torch.rand(3, 1, 4, 4)
    images[1, 0, 2, 3] = 1.0001
    with pytest.raises(LingraftError, match=r"1\.0001"):
        ImageSet(images, torch.zeros(3, dtype=torch.int64))


def _pairs(form: str) -> object:
    images, labels = torch.rand(7, 1, 2, 2, generator=torch.Generator().manual_seed(0)), torch.arange(7)
    sets = torch.utils.data.TensorDataset(images, labels)
    return {
        "set": ImageSet(images, labels),
        "tensors": (images, labels),
        "arrays": (images.double().numpy(), labels.int().numpy()),
        "loader": torch.utils.data.DataLoader(sets, batch_size=3),
        "batches": ((i, l) for i, l in zip(images.split(2), labels.split(2), strict=True)),
        "dataset": sets,
        "plain list": [(image, int(label)) for image, label in zip(images, labels, strict=True)],
    }[form]


FORMS = ["set", "tensors", "arrays", "loader", "batches", "dataset", "plain list"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [None, 4])
def test_of_takes_data_in_any_form(form: str, count: int | None):
    found, expected = ImageSet.of(_pairs(form), count), ImageSet.of(_pairs("set")).take(count or 7)
    assert torch.equal(found.images, expected.images)
    assert torch.equal(found.labels, expected.labels)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([torch.zeros(1, 2, 2)], "pairs"),
        ([(torch.zeros(1, 2, 2), 0, 0)], "not tuple of 3"),
        ([], "no images"),
        (7, "tensors, a DataLoader or a Dataset, not int"),
        ([("a picture", 3)], "not str"),
        ([(torch.zeros(1, 2, 2), 0), (torch.zeros(1, 3, 3), 1)], "the same shape"),
        ((torch.zeros(3, 1, 2, 2), torch.zeros(3)), "int64"),
        ((torch.full((3, 1, 2, 2), 2.0), torch.zeros(3).long()), "first layer of the model"),
    ],
)
def test_of_refuses_what_it_cannot_use(source: object, message: str):
    with pytest.raises(LingraftError, match=message):
        ImageSet.of(source)
