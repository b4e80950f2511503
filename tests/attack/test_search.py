"""PGD with restarts over a set: nothing is attacked once it is broken, and the batch size changes nothing."""

import pytest
import torch
from torch import Tensor, nn

from lingraft.attack import find_unbroken
from lingraft.attack.ball import ascend, bounds
from lingraft.attack.gradient import cross_entropy, input_gradient
from lingraft.attack.noise import uniform_noise
from lingraft.data import ImageSet, load
from lingraft.model import zoo


class Counting(nn.Module):
    """Counts the images that pass, and remembers the size of each batch."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model
        self.sizes: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        self.sizes.append(len(images))
        return self.model(images)


@pytest.fixture(scope="module")
def trained() -> tuple[nn.Module, ImageSet]:
    """A digits network trained for a moment without an attack, so that some images break and some do not."""
    torch.manual_seed(0)
    model = zoo.build("digits-cnn")
    data = load("digits", "train")
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data.pixels()), data.labels).backward()
        optimizer.step()
    return model.eval(), load("digits", "test").take(120)


def correct(model: nn.Module, data: ImageSet) -> Tensor:
    with torch.no_grad():
        return model(data.pixels()).argmax(1) == data.labels


def one_by_one(
    model: nn.Module, data: ImageSet, eps: float, steps: int, restarts: int, seed: int
) -> tuple[Tensor, int]:
    """The same attack as plainly as it can be written; also counts the images that pass the network."""
    unbroken, passes = correct(model, data), 0
    for index in unbroken.nonzero().flatten().tolist():
        image, label = data.pixels(slice(index, index + 1)), data.labels[index : index + 1]
        for restart in range(restarts):
            noise = uniform_noise(seed, torch.tensor([restart]), torch.tensor([index]), tuple(image.shape[1:]))
            point = (image + eps * noise).clamp(0, 1)
            for step in range(steps + 1):
                passes += 1
                gradient, logits = input_gradient(model, point, cross_entropy(label))
                if int(logits.argmax(1)) != int(label):
                    unbroken[index] = False
                    break
                if step < steps:
                    point = ascend(point, gradient, 2.5 * eps / steps, *bounds(image, eps))
            if not unbroken[index]:
                break
    return unbroken, passes


@pytest.mark.slow
def test_equals_the_plain_attack_for_every_batch_size_and_never_attacks_a_broken_image_again(
    trained: tuple[nn.Module, ImageSet],
) -> None:
    model, data = trained
    expected, passes = one_by_one(model, data, 0.1, steps=6, restarts=3, seed=5)
    candidates = correct(model, data)
    assert 10 < int(expected.sum()) < int(candidates.sum()) - 10  # both kinds occur
    for batch in (1, 7, 64, 1000):
        counting = Counting(model)
        found = find_unbroken(counting, data, candidates, 0.1, steps=6, restarts=3, seed=5, batch=batch)
        assert torch.equal(found, expected), batch
        assert sum(counting.sizes) == passes, batch
        assert max(counting.sizes) <= batch


def test_batches_stay_full_until_too_few_are_left(trained: tuple[nn.Module, ImageSet]) -> None:
    model, data = trained
    counting = Counting(model)
    find_unbroken(counting, data, correct(model, data), 0.1, steps=6, restarts=4, batch=16)
    gradient_passes = [size for size in counting.sizes if size <= 16]
    full = sum(size == 16 for size in gradient_passes)
    # the last round of up to 16 images, and final iterates, are all that may be smaller
    assert full * 16 > 0.7 * sum(counting.sizes)


def test_more_restarts_break_no_fewer_images(trained: tuple[nn.Module, ImageSet]) -> None:
    model, data = trained
    candidates = correct(model, data)
    one = find_unbroken(model, data, candidates, 0.1, steps=5, restarts=1)
    many = find_unbroken(model, data, candidates, 0.1, steps=5, restarts=6)
    assert bool((one | ~many).all())  # what survives many restarts survives the first of them
    assert bool((candidates | ~one).all())


def test_the_result_of_an_image_does_not_depend_on_how_many_others_there_are(
    trained: tuple[nn.Module, ImageSet],
) -> None:
    model, data = trained
    few = data.take(30)
    whole = find_unbroken(model, data, correct(model, data), 0.08, steps=5, restarts=2)
    part = find_unbroken(model, few, correct(model, few), 0.08, steps=5, restarts=2)
    assert torch.equal(whole[:30], part)


def test_watch_is_told_of_every_restart(trained: tuple[nn.Module, ImageSet]) -> None:
    model, data = trained
    candidates = correct(model, data)
    told: list[tuple[int, int]] = []
    found = find_unbroken(
        model, data, candidates, 0.1, steps=4, restarts=3, watch=lambda ended, left: told.append((ended, left))
    )
    assert sum(ended for ended, _ in told) == 3 * int(candidates.sum())
    assert told[-1][1] == int(found.sum())


def test_no_candidates(trained: tuple[nn.Module, ImageSet]) -> None:
    model, data = trained
    nobody = torch.zeros(len(data), dtype=torch.bool)
    assert not find_unbroken(model, data, nobody, 0.1, steps=2, restarts=2).any()
