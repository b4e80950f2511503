"""What a classifier makes of its logits at the end does not change the question about labels."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lingraft
from lingraft import LingraftError
from lingraft.attack.evaluation import predictions
from lingraft.training.differentiable.certify import certified_by_intervals

IMAGES = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))


class Ended(nn.Module):
    def __init__(self, classes: int, end):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.relu, self.last, self.end = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, classes), end

    def logits(self, x: Tensor) -> Tensor:
        return self.last(self.relu(self.first(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.logits(x))


def verdicts(model: nn.Module, labels: Tensor, **more) -> list[str]:
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        results = lingraft.verify(model.eval(), IMAGES, labels, eps=0.05, workers=0, timeout=20, **more)
    assert all("left out" in str(note.message) or "single logit" in str(note.message) for note in notes)
    return [result.verdict for result in results]


@pytest.mark.parametrize(
    "end",
    [nn.Softmax(dim=1), nn.LogSoftmax(dim=-1), lambda x: F.softmax(x, 1), lambda x: x.log_softmax(dim=1)],
)
def test_a_last_softmax_is_left_out(end) -> None:
    plain, ended = Ended(3, nn.Identity()), Ended(3, end)
    labels = plain(IMAGES).argmax(1)
    with pytest.warns(UserWarning, match="left out"):
        given = lingraft.logits(ended, (4,))
    torch.testing.assert_close(given(IMAGES), ended.logits(IMAGES))
    assert verdicts(ended, labels) == verdicts(plain, labels)


def test_of_constraints_it_is_not() -> None:
    """They are about what the model gives: probabilities above 0 are not logits above 0."""
    assert set(verdicts(Ended(3, nn.Softmax(1)), None, constraints=(torch.eye(3), torch.zeros(3)))) == {"verified"}
    with pytest.raises(LingraftError, match=r"LogSoftmax.*not supported"):
        verdicts(Ended(3, nn.LogSoftmax(1)), None, constraints=(torch.eye(3), torch.zeros(3)))


def test_a_softmax_over_anything_else_is_refused() -> None:
    with pytest.raises(LingraftError, match="dimension 0"):
        lingraft.logits(Ended(3, nn.Softmax(0)), (4,))


@pytest.mark.parametrize("end", [nn.Identity(), nn.Sigmoid(), nn.Flatten(0), lambda x: x[:, 0]])
def test_a_single_logit_is_two(end) -> None:
    model = Ended(1, end)
    with torch.no_grad():
        values = model.logits(IMAGES)[:, 0]
        model.last.bias -= values.median()  # so that there are both classes
        values = model.logits(IMAGES)[:, 0]
    labels = (values > 0).long()
    assert labels.unique().tolist() == [0, 1]
    with pytest.warns(UserWarning, match="single logit"):
        two = lingraft.logits(model, (4,))
    torch.testing.assert_close(two(IMAGES), torch.stack([torch.zeros_like(values), values], 1))
    torch.testing.assert_close(
        F.cross_entropy(two(IMAGES), labels), F.binary_cross_entropy_with_logits(values, labels.float())
    )
    assert "verified" in verdicts(model, labels)
    assert set(verdicts(model, 1 - labels)) == {"misclassified"}
    corners = 0.05 * (2 * torch.randint(2, (400, 1, 4)) - 1)
    around = two((IMAGES + corners).clamp(0, 1).flatten(0, 1)).argmax(1).view(400, 6)
    for image, verdict in enumerate(verdicts(model, labels)):
        assert verdict != "verified" or bool((around[:, image] == labels[image]).all())


def test_logits_are_given_back_as_they_are() -> None:
    model = Ended(3, nn.Identity())
    assert lingraft.logits(model, (4,)) is model


def test_to_be_trained_a_single_logit_is_asked_to_be_two(tmp_path) -> None:
    with pytest.raises(LingraftError, match=r"lingraft\.logits"):
        lingraft.save(Ended(1, nn.Identity()), tmp_path / "run", (4,), eps=0.1)


def test_the_accuracy_of_a_single_logit_is_that_of_its_sign():
    model = Ended(1, nn.Identity()).eval()
    labels = (model(IMAGES)[:, 0] > 0).long()
    labels[0] = 1 - labels[0]
    with pytest.warns(UserWarning, match="single logit"):
        accuracy = lingraft.evaluate(model, (IMAGES, labels), eps=0.0, steps=1, restarts=1)
    assert accuracy.sa == pytest.approx(5 / 6)


@pytest.mark.parametrize(
    "end",
    [
        lambda z: torch.sigmoid(z).squeeze(1),
        lambda z: torch.sigmoid(z).flatten(),
        lambda z: torch.sigmoid(z).view(-1),
        lambda z: torch.sigmoid(z)[:, 0],
        lambda z: torch.sigmoid(z).clone(),
        torch.special.expit,
        lambda z: z.sigmoid_(),
    ],
)
def test_a_probability_above_0_is_not_class_1(end):
    model = Ended(1, end).eval()
    model.last.bias.data -= 5  # below one half everywhere
    assert bool((model(IMAGES) < 0.5).all())
    assert verdicts(model, torch.ones(6, dtype=torch.long)) == ["misclassified"] * 6
    assert verdicts(model, torch.zeros(6, dtype=torch.long)) == ["verified"] * 6


@pytest.mark.parametrize(
    "end",
    [
        F.hardsigmoid,
        lambda z: torch.sigmoid(z).clamp(0.1, 0.9),
        lambda z: 1 - torch.sigmoid(z),
        lambda z: z.clamp(0, 1),
    ],
)
def test_what_may_be_a_probability_is_refused(end):
    with pytest.raises(LingraftError, match="logit or a probability"):
        lingraft.verify(Ended(1, end).eval(), IMAGES, torch.ones(6, dtype=torch.long), eps=0.05, workers=0)


def test_one_output_leaves_nothing_to_compare_with():
    data = lingraft.ImageSet(IMAGES, torch.zeros(6, dtype=torch.long))
    single = Ended(1, nn.Identity()).eval()
    with pytest.raises(LingraftError, match="no other class"):
        certified_by_intervals(single, data, 0.01)
    with pytest.raises(LingraftError, match="not two logits"):
        predictions(single, data)
