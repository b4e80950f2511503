"""Batches: every image once, the same for the same seed, and crops and flips as a loop over the images makes them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lingraft import LingraftError
from lingraft.data import Batches, ImageSet, batches
from lingraft.data.augment import crop_and_flip


def numbered(count: int, dtype: torch.dtype = torch.uint8) -> ImageSet:
    """Images whose pixels all tell their number, for at most 255 of them."""
    images = torch.arange(1, count + 1).view(-1, 1, 1, 1).expand(-1, 2, 8, 8)
    images = images.to(torch.uint8) if dtype == torch.uint8 else images / 255
    return ImageSet(images.contiguous(), torch.arange(count))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def all_of(source: Batches) -> tuple[Tensor, Tensor]:
    pixels, labels = zip(*source, strict=True)
    return torch.cat(pixels), torch.cat(labels)


@given(count=st.integers(1, 40), size=st.integers(1, 50), ahead=st.integers(1, 60), as_bytes=st.booleans())
def test_in_order_without_shuffle(count: int, size: int, ahead: int, as_bytes: bool):
    data = numbered(count, torch.uint8 if as_bytes else torch.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "_AHEAD", ahead)
        source = Batches(data, size)
        parts = list(source)
    assert len(parts) == len(source) == -(-count // size)
    assert [len(labels) for _, labels in parts[:-1]] == [size] * (len(parts) - 1)
    assert all(pixels.dtype == torch.float32 and len(pixels) == len(labels) for pixels, labels in parts)
    assert torch.equal(torch.cat([pixels for pixels, _ in parts]), data.pixels())
    assert torch.equal(torch.cat([labels for _, labels in parts]), data.labels)


@given(count=st.integers(1, 40), size=st.integers(1, 50), ahead=st.integers(1, 60), seed=st.integers(0, 2**32))
def test_shuffle_gives_each_image_once_with_its_label(count: int, size: int, ahead: int, seed: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "_AHEAD", ahead)
        pixels, labels = all_of(Batches(numbered(count), size, shuffle=True, generator=seeded(seed)))
    assert sorted(labels.tolist()) == list(range(count))
    assert torch.equal(pixels[:, 0, 0, 0], (labels + 1) / 255)


def test_passes_differ_and_the_seed_decides():
    data = ImageSet(torch.randint(256, (100, 3, 8, 8), dtype=torch.uint8, generator=seeded(1)), torch.arange(100))
    source = Batches(data, 32, shuffle=True, augment=True, generator=seeded(3))
    first, second = all_of(source), all_of(source)
    assert not torch.equal(first[1], second[1])
    again = Batches(data, 32, shuffle=True, augment=True, generator=seeded(3))
    for expected, (pixels, labels) in zip((first, second), (all_of(again), all_of(again)), strict=True):
        assert torch.equal(pixels, expected[0])
        assert torch.equal(labels, expected[1])
    other = all_of(Batches(data, 32, shuffle=True, augment=True, generator=seeded(4)))
    assert not torch.equal(other[1], first[1])


def test_a_pass_does_not_depend_on_the_batch_size_or_on_other_draws():
    data = ImageSet(torch.randint(256, (50, 1, 8, 8), dtype=torch.uint8, generator=seeded(1)), torch.arange(50))
    whole = all_of(Batches(data, 50, shuffle=True, augment=True, generator=seeded()))
    generator = seeded()
    pixels = []
    for batch, _ in Batches(data, 7, shuffle=True, augment=True, generator=generator):
        pixels.append(batch)
        torch.rand(3, generator=generator)  # as a random start of an attack would
    assert torch.equal(torch.cat(pixels), whole[0])


def test_a_generator_state_can_be_taken_up_again():
    data = numbered(30)
    generator = seeded()
    source = Batches(data, 8, shuffle=True, generator=generator)
    all_of(source)
    state = generator.get_state()
    expected = all_of(source)[1]
    resumed = torch.Generator()
    resumed.set_state(state)
    assert torch.equal(all_of(Batches(data, 8, shuffle=True, generator=resumed))[1], expected)


def test_batches_may_be_changed_in_place():
    data = numbered(12, torch.float32)
    before = data.images.clone()
    weight = torch.ones(1, requires_grad=True)
    seen = []
    for pixels, _ in Batches(data, 4):
        assert not pixels.requires_grad
        assert pixels.is_leaf
        seen.append(pixels.clone())
        pixels.mul_(weight)
        pixels.sum().backward()
    assert torch.equal(data.images, before)
    assert torch.equal(torch.cat(seen), before)


def test_default_generator_is_torchs():
    torch.manual_seed(5)
    first = all_of(Batches(numbered(20), 6, shuffle=True))[1]
    torch.manual_seed(5)
    assert torch.equal(all_of(Batches(numbered(20), 6, shuffle=True))[1], first)


@pytest.mark.parametrize("size", [0, -3])
def test_batch_of_nothing(size: int):
    with pytest.raises(LingraftError, match="at least 1"):
        Batches(numbered(3), size)


def one_image(image: Tensor, top: int, left: int, flip: bool) -> Tensor:
    """What the augmentation means, pixel by pixel."""
    channels, height, width = image.shape
    result = torch.zeros_like(image)
    for c in range(channels):
        for y in range(height):
            for x in range(width):
                row = y + top - 4
                column = (width - 1 - x if flip else x) + left - 4
                if 0 <= row < height and 0 <= column < width:
                    result[c, y, x] = image[c, row, column]
    return result


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_crop_and_flip_is_what_a_loop_makes(data: st.DataObject):
    count, channels, height, width = (data.draw(st.integers(1, most)) for most in (4, 3, 7, 7))
    dtype = data.draw(st.sampled_from([torch.uint8, torch.float32]))
    seed = seeded(data.draw(st.integers(0, 1000)))
    images = torch.randint(256, (count, channels, height, width), generator=seed).to(dtype)
    top, left = (torch.tensor(data.draw(st.lists(st.integers(0, 8), min_size=count, max_size=count))) for _ in "xy")
    flip = torch.tensor(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    result = crop_and_flip(images, top, left, flip)
    expected = [one_image(images[i], int(top[i]), int(left[i]), bool(flip[i])) for i in range(count)]
    assert result.dtype == dtype
    assert torch.equal(result, torch.stack(expected))


def test_no_shift_and_no_flip_changes_nothing():
    images = torch.randint(256, (6, 3, 32, 32), dtype=torch.uint8, generator=seeded())
    four = torch.full((6,), 4)
    assert torch.equal(crop_and_flip(images, four, four, torch.zeros(6, dtype=torch.bool)), images)
    assert torch.equal(crop_and_flip(images, four, four, torch.ones(6, dtype=torch.bool)), images.flip(3))


def test_augmentation_draws_all_shifts_and_flips_evenly():
    # one bright pixel off the middle tells the shift and the flip of each image
    count, side = 162 * 60, 19
    images = torch.zeros(count, 1, side, side, dtype=torch.uint8)
    images[:, :, 9, 4] = 255
    data = ImageSet(images, torch.zeros(count, dtype=torch.int64))
    pixels, _ = all_of(Batches(data, 500, augment=True, generator=seeded()))
    assert torch.equal(pixels.sum((1, 2, 3)), torch.ones(count))
    place = pixels.flatten(1).argmax(1)
    rows, columns = place // side, place % side
    flipped = columns >= 10
    shifts = torch.stack([13 - rows, torch.where(flipped, columns - 10, 8 - columns), flipped.long()], 1)
    kinds, counts = shifts.unique(dim=0, return_counts=True)
    assert len(kinds) == 9 * 9 * 2
    assert kinds.min(0).values.tolist() == [0, 0, 0]
    assert kinds.max(0).values.tolist() == [8, 8, 1]
    # chi-square with 161 degrees of freedom: mean 161, deviation 18
    assert ((counts - 60.0) ** 2 / 60).sum() < 161 + 5 * 18


def test_augmented_images_keep_their_labels():
    images = torch.arange(1, 101, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 16, 16).contiguous()
    data = ImageSet(images, torch.arange(100))
    for pixels, labels in Batches(data, 16, shuffle=True, augment=True, generator=seeded()):
        assert torch.equal(pixels.amax((1, 2, 3)), (labels + 1) / 255)
        assert pixels.min() >= 0
