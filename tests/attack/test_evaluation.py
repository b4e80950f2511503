"""Standard and robust accuracy."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lingraft import LingraftError
from lingraft.attack.evaluation import Attack, correct, evaluate, robust
from lingraft.data import ImageSet


class Threshold(nn.Module):
    """Class 1 where the mean pixel is above 1/2; a grey image is robust up to its distance from 1/2."""

    def forward(self, images: Tensor) -> Tensor:
        score = 20 * (images.mean((1, 2, 3)) - 0.5)
        return torch.stack([-score, score], 1)


def grey(values: list[float], labels: list[int]) -> ImageSet:
    return ImageSet(torch.tensor(values).view(-1, 1, 1, 1).expand(-1, 1, 4, 4).contiguous(), torch.tensor(labels))


#: distances to the boundary: 0.3, 0.05, 0.15, 0.3; the fourth is misclassified
FOUR = grey([0.2, 0.45, 0.65, 0.8], [0, 0, 1, 0])


def test_correct() -> None:
    assert correct(Threshold(), FOUR, batch=3).tolist() == [True, True, True, False]


@pytest.mark.parametrize("name", ["pgd", "fgsm"])
@pytest.mark.parametrize(("eps", "ra"), [(0.0, 0.75), (0.04, 0.75), (0.1, 0.5), (0.2, 0.25), (0.4, 0.0)])
def test_robust_accuracy_is_that_of_a_model_whose_margins_are_known(name: str, eps: float, ra: float) -> None:
    result = evaluate(Threshold(), FOUR, Attack(eps, name, steps=5, restarts=2), batch=2)
    assert (result.sa, result.ra, result.sa_attacked) == (0.75, ra, 0.75)
    assert (result.images_sa, result.images) == (4, 4)


def test_some_images_only() -> None:
    result = evaluate(Threshold(), FOUR, Attack(0.1, steps=5, restarts=1), images=2)
    assert (result.sa, result.images_sa) == (0.75, 4)
    assert (result.ra, result.sa_attacked, result.images) == (0.5, 1.0, 2)


def test_fgsm_in_batches_does_not_depend_on_their_size() -> None:
    candidates = correct(Threshold(), FOUR)
    results = [robust(Threshold(), FOUR, candidates, Attack(0.1, "fgsm"), batch=batch).tolist() for batch in (1, 2, 9)]
    assert results == [[True, False, True, False]] * 3


def test_the_mode_of_the_model_is_put_back() -> None:
    model = nn.Sequential(Threshold(), nn.Dropout(0.9))
    model.train()
    result = evaluate(model, FOUR, Attack(0.01, steps=1, restarts=1))
    assert result.sa == 0.75  # without dropout
    assert model.training


def test_names_and_records() -> None:
    result = evaluate(Threshold(), FOUR, Attack(2 / 255, steps=3, restarts=4, seed=9), images=3)
    assert result.name == "pgd-3x4 eps=0.00784314 images=3 seed=9"
    other = replace(result, attack=replace(result.attack, step_size=0.001))
    assert other.name == "pgd-3x4 eps=0.00784314 images=3 seed=9 step=0.001"
    record = result.as_dict()
    assert (record["attack"], record["steps"], record["restarts"], record["seed"]) == ("pgd", 3, 4, 9)
    assert record["step_size"] == pytest.approx(2.5 * 2 / 255 / 3)
    assert {"eps", "sa", "ra", "images", "images_sa", "sa_attacked", "seconds"} <= record.keys()
    assert str(Attack(0.1, "fgsm")) == "fgsm"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eps": -1.0}, "eps"),
        ({"eps": float("nan")}, "eps"),
        ({"eps": "8 of 255"}, "eps is '8 of 255', which is not a number"),
        ({"eps": 0.1, "steps": 0}, "steps of at least 1"),
        ({"eps": 0.1, "restarts": 0}, "restarts of at least 1"),
        ({"eps": 0.1, "step_size": 0.0}, "step size"),
        ({"eps": 0.1, "name": "pdg"}, "Did you mean 'pgd'"),
    ],
)
def test_bad_attacks(settings: dict[str, object], message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        Attack(**settings)  # type: ignore[arg-type]


def test_bad_numbers_of_images() -> None:
    for images in (0, 5):
        with pytest.raises(LingraftError, match="cannot take"):
            evaluate(Threshold(), FOUR, Attack(0.1), images=images)
    with pytest.raises(LingraftError, match="eps is 8, more than the whole pixel range"):
        evaluate(Threshold(), FOUR, Attack(8.0))
    with pytest.raises(LingraftError, match="at least 1 image"):
        evaluate(Threshold(), FOUR, Attack(0.1), batch=0)


def test_a_model_with_nan_outputs_is_an_error() -> None:
    class Broken(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.full((len(images), 2), float("nan"))

    with pytest.raises(LingraftError, match="NaN"):
        evaluate(Broken(), FOUR, Attack(0.1))


def test_uint8_images(tmp_path: Path) -> None:
    images = ImageSet((FOUR.images * 255).to(torch.uint8), FOUR.labels)
    assert evaluate(Threshold(), images, Attack(0.1, steps=3, restarts=1)).ra == 0.5
