"""Verdicts that a run keeps: what they are about decides whether they are used again."""

import copy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lingraft
from lingraft.ball import radius
from lingraft.checker.format import encode, read
from lingraft.files import read_lines
from lingraft.pool.here import Here
from lingraft.report.study import Study
from lingraft.runs import Run
from lingraft.runs.own_images import kept_images
from lingraft.runs.verdicts import Verdicts
from lingraft.solver.request import Limits, Request
from lingraft.work.keeping import require_same_weights


def _positive_above(threshold: float) -> nn.Sequential:
    """Logits (relu(x + 1) − 1 − threshold, 0): class 0 where x > threshold, for x ≥ −1."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2)).eval()
    for parameter, values in zip(
        model.parameters(), ([[1.0]], [1.0], [[1.0], [0.0]], [-1.0 - threshold, 0.0]), strict=True
    ):
        parameter.data.copy_(torch.tensor(values))
    return model


def test_another_pixel_range_is_another_question(tmp_path: Path) -> None:
    """Cut to [0, 1] the ball around 0 is verified; not cut, it holds a counterexample."""
    model, image = _positive_above(-0.05), torch.zeros(1, 1, 1, 1)
    run = lingraft.save(model, tmp_path / "run", (1, 1, 1))

    def ask(clip: tuple[float, float] | None) -> str:
        return lingraft.verify(model, image, [0], eps=0.1, clip=clip, workers=0, run=run)[0].verdict

    assert [ask((0.0, 1.0)), ask(None), ask((0, 1)), ask((-0.01, 1.0))] == [
        "verified", "falsified", "verified", "verified",
    ]  # fmt: skip
    assert len(run.verdicts_path.read_text().splitlines()) == 3, "(0, 1) was asked before"
    assert len(run.summary().verification) == 3


def test_another_precision_is_another_question(tmp_path: Path) -> None:
    """0 is on the boundary but for 2⁻³⁰, which float32 rounds away: in float64 the model gets it right."""
    model, image = _positive_above(0.0), torch.full((1, 1, 1, 1), 2.0**-30)
    run = lingraft.save(model, tmp_path / "run", (1, 1, 1))

    def ask(model: nn.Module) -> str:
        return lingraft.verify(model, image, [0], eps=0.0, workers=0, run=run)[0].verdict

    found = [ask(model), ask(copy.deepcopy(model).double()), ask(model)]
    assert (found[0], found[2]) == ("misclassified", "misclassified")
    assert found[1] != "misclassified"
    assert len(read_lines(run.verdicts_path)) == 2, "the third was asked before"


class Shifted(nn.Module):
    """Logits (relu(x + 1) − 1 + shift, 0), written so that the state_dict does not say all of it."""

    def __init__(self, how: str, shift: float = 0.05):
        super().__init__()
        self.how, self.shift = how, shift
        self.first, self.last = nn.Linear(1, 1), nn.Linear(1, 2)
        self.bend = nn.LeakyReLU(shift if how == "slope" else 0.0)
        self.register_buffer("moved", torch.tensor(shift), persistent=False)
        for layer, weight, bias in ((self.first, [[1.0]], [1.0]), (self.last, [[1.0], [0.0]], [-1.0, 0.0])):
            layer.weight.data.copy_(torch.tensor(weight))
            layer.bias.data.copy_(torch.tensor(bias))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(torch.flatten(x, 1))
        if self.how == "slope":  # of −(x + 1), which is below 0
            return self.last(-self.bend(-x) / 0.05)
        x = self.last(torch.relu(x))
        return x + torch.stack([self.moved, 0 * self.moved]) if self.how == "buffer" else self.moved_by_number(x)

    def moved_by_number(self, x: Tensor) -> Tensor:
        return x + self.shift * torch.tensor([1.0, 0.0])


class Rewritten(Shifted):
    """The same weights and attributes in other code."""

    def moved_by_number(self, x: Tensor) -> Tensor:
        return x - self.shift * torch.tensor([1.0, 0.0])


def _changes() -> dict[str, tuple[Shifted, Shifted]]:
    """What is changed → a network that is verified on the ball of 0.04 around 0, and one that is not."""
    return {
        "attribute": (Shifted("number"), Shifted("number", -0.05)),
        "buffer": (Shifted("buffer"), Shifted("buffer", -0.05)),
        "slope": (Shifted("slope", 0.0525), Shifted("slope", 0.045)),
        "code": (Shifted("number"), Rewritten("number")),
    }


def test_verdicts_of_a_network_that_was_trained_again_are_shown_with_new_ones(tmp_path: Path) -> None:
    """The same weights in a file that differs, as of another epoch: no verdict is found again, and none is lost."""
    model, images = _positive_above(-0.05), torch.tensor([0.0, 0.2]).view(2, 1, 1, 1)
    run = lingraft.save(model, tmp_path / "run", (1, 1, 1))
    lingraft.verify(model, images[:1], [0], eps=0.1, workers=0, run=run)
    run.save_weights(model, {"epoch": 7})
    lingraft.verify(model, images, [0, 0], eps=0.1, workers=0, run=run)
    (verification,) = Study(run, "run").verifications
    assert verification.summary.images == 2
    assert len(read_lines(run.verdicts_path)) == 3
    lingraft.verify(model, images, [0, 0], eps=0.1, workers=0, run=run)
    assert len(read_lines(run.verdicts_path)) == 3, "filed once"


@pytest.mark.parametrize("what", ["attribute", "buffer", "slope", "code"])
def test_a_verdict_is_about_what_the_network_computes_and_not_its_weights_alone(what: str, tmp_path: Path) -> None:
    good, bad = (model.eval() for model in _changes()[what])
    image = torch.zeros(1, 1, 1, 1)
    run = lingraft.save(good, tmp_path / "run", (1, 1, 1))
    require_same_weights(run, bad)  # which sees no difference
    found = [
        lingraft.verify(model, image, [0], eps=0.04, clip=None, workers=0, run=run)[0].verdict
        for model in (good, bad, good)
    ]
    assert found[0] == found[2] == "verified"
    assert found[1] in ("falsified", "misclassified")
    assert len(read_lines(run.verdicts_path)) == 2, "the third was asked before"


def test_verdicts_of_version_0_1_0_are_read_and_shown_but_not_used_again(tmp_path: Path) -> None:
    """The folder was made by that version, by verifying three images within 0.1, in [0, 1] and not cut at all."""
    run = Run(shutil.copytree(Path(__file__).parents[1] / "fixtures" / "own_run_of_0_1_0", tmp_path / "run"))
    model = lingraft.load(run, model=_positive_above(-0.05))
    old = read_lines(run.verdicts_path)
    assert [record["verdict"] for record in old[-3:]] == ["misclassified", "verified", "falsified"]
    (shown,) = Study(run, "old").verifications
    assert [result.verdict for result in shown.results] == ["verified", "falsified", "misclassified"]
    images = kept_images(run, "own")
    assert images is not None
    asked = Request(model, images.pixels(), images.labels, eps=0.1, clip=None)
    assert Verdicts(run, "own", asked, Limits()).known() == {}
    for _ in range(2):
        results = lingraft.verify(model, images.pixels(), images.labels, eps=0.1, clip=None, workers=0, run=run)
        assert [result.verdict for result in results] == ["verified", "falsified", "misclassified"]
        assert len(read_lines(run.verdicts_path)) == len(old) + 3, "verified again, once"
    (shown,) = Study(run, "new").verifications
    assert [result.verdict for result in shown.results] == ["verified", "falsified", "misclassified"]


def test_another_radius_of_a_feature_is_another_question(tmp_path: Path) -> None:
    """A verdict is used again for the same box only, and is then filed under what was asked for."""
    model = nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 2)).eval()
    with torch.no_grad():
        for parameter, values in zip(
            model.parameters(), ([[1.0, 0.0]], [0.0], [[1.0], [0.0]], [-0.5, 0.0]), strict=True
        ):
            parameter.copy_(torch.tensor(values))
    image = torch.tensor([[1.0, 1.0]])
    run = lingraft.save(model, tmp_path / "run", (2,), eps=[0.1, 9.0], clip=None)

    def ask(eps: Any = None, clip: Any = "data") -> str:
        return lingraft.verify(model, image, [0], eps=eps, clip=clip, workers=0, run=run)[0].verdict

    def lines() -> int:
        return len(read_lines(run.verdicts_path))

    assert (ask(), lines()) == ("verified", 1), "radius and range of the run"
    assert (ask(torch.tensor([0.1, 9.0], dtype=torch.float64)), lines()) == ("verified", 1), "the same"
    assert (ask([9.0, 0.1]), lines()) == ("falsified", 2)
    assert (ask([0.1, 9.0], clip=(0, 2)), lines()) == ("verified", 3)
    assert (ask([9.0, 0.1], clip=([0.9, 0.0], [2.0, 2.0])), lines()) == ("verified", 4)
    assert (ask([[0.1, 9.0]]), lines()) == ("verified", 5), "the same box: known, and filed under another name"
    assert len(run.summary().verification) == 5


#: Radii around 0.5 of which `_positive_above(0.25)` is verified within the second only.
RADII = torch.tensor([0.3, 0.001]).view(2, 1, 1, 1)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_an_image_twice_with_two_radii_is_two_questions(order: list[int], workers: int, tmp_path: Path) -> None:
    model, image = _positive_above(0.25), torch.full((1, 1, 1, 1), 0.5)
    run = lingraft.save(model, tmp_path / "run", (1, 1, 1))
    expected = [["falsified", "verified"][i] for i in order]

    def ask(eps: Any) -> list[str]:
        images = image.expand(len(eps), 1, 1, 1)
        results = lingraft.verify(model, images, [0] * len(eps), eps=eps, workers=workers, run=run)
        assert [result.index for result in results] == [0] * len(eps)
        return [result.verdict for result in results]

    assert ask(RADII[order]) == expected
    assert ask(RADII[order]) == expected
    assert len(read_lines(run.verdicts_path)) == 2, "both are known under their own questions"
    for i in (0, 1):
        assert ask(RADII[i : i + 1]) == [["falsified", "verified"][i]], "alone, from what was kept"


def test_the_result_that_comes_first_is_not_taken_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with workers, of which the second may be done before the first: answers come in the reverse order."""
    model, images = _positive_above(0.25), torch.full((2, 1, 1, 1), 0.5)
    run = lingraft.save(model, tmp_path / "run", (1, 1, 1))
    answers = Here.answers
    monkeypatch.setattr(Here, "answers", lambda pool, wait=True: reversed(list(answers(pool, wait))))
    for _ in range(2):
        found = lingraft.verify(model, images, [0, 0], eps=RADII, workers=0, run=run)
        assert [result.verdict for result in found] == ["falsified", "verified"]


@pytest.mark.slow
def test_a_worker_that_is_done_first_does_not_answer_for_another(tmp_path: Path) -> None:
    """The first radius takes long, the second is falsified at once."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 144, 2)
    ).eval()
    image = torch.rand(1, 1, 28, 28)
    last = model[5]
    assert isinstance(last, nn.Linear)
    last.bias.data += torch.tensor([0.02, 0.0]) - model(image)[0].detach()
    run = lingraft.save(model, tmp_path / "run", (1, 28, 28))
    eps = torch.tensor([0.0005, 0.3]).view(2, 1, 1, 1)
    for _ in range(2):
        found = lingraft.verify(model, image.repeat(2, 1, 1, 1), [0, 0], eps=eps, workers=2, run=run)
        assert [result.verdict for result in found] == ["verified", "falsified"]


def test_samples_that_are_the_same_in_float32_are_two_questions(tmp_path: Path) -> None:
    """Class 0 where |x − 2²⁴| is below ½ or x is below 2²⁴; 2²⁴ + 1 is no float32 number."""
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2)).eval()
    for parameter, values in zip(
        model.parameters(),
        ([[-1.0], [1.0]], [2.0**24, -(2.0**24)], [[1.0, 0.0], [0.0, 1.0]], [0.5, 0.0]),
        strict=True,
    ):
        parameter.data.copy_(torch.tensor(values))
    images = torch.tensor([[2.0**24 + 1], [2.0**24]], dtype=torch.float64)
    run = lingraft.save(model, tmp_path / "run", (1,))
    for _ in range(2):
        found = lingraft.verify(model, images, [0, 0], eps=0.1, clip=(0, 1e9), workers=0, run=run)
        assert [result.verdict for result in found] == ["unknown", "verified"], "the model itself is in float32"


def _reach(certificate: Path) -> float:
    """The upper end of the box that a certificate is about."""
    upper = read(certificate).upper
    assert upper is not None
    return float(upper.max())


def test_each_question_about_an_image_has_its_own_certificate(tmp_path: Path) -> None:
    model, images = _positive_above(0.25), torch.full((3, 1, 1, 1), 0.5)
    run = lingraft.save(model, tmp_path / "run", (1, 1, 1))
    eps = torch.tensor([0.1, 0.2, 0.001], dtype=torch.float64).view(3, 1, 1, 1)
    name = f"{radius(eps):.6g}".replace(" #", "-")
    for _ in range(2):
        found = lingraft.verify(model, images, [0, 0, 0], eps=eps, workers=0, run=run, check=True)
        assert [(result.verdict, result.checked) for result in found] == [("verified", True)] * 3
        assert found.certificates is not None
        assert (found.certificates.certificates, found.certificates.checked) == (3, 3)
        files = sorted((run.path / "certificates").glob("*.cert"))
        assert len(files) == 3
        assert f"own-0-eps{name}.cert" in {file.name for file in files}, "the first has the usual name"
        assert sorted(map(_reach, files)) == pytest.approx([0.501, 0.6, 0.7])
    records = read_lines(run.verdicts_path)
    assert len({record["question"] for record in records}) == 3
    assert {record["question"] for record in records if record["checked"]} == {r["question"] for r in records}


def test_a_rejected_certificate_is_that_of_one_question(tmp_path: Path) -> None:
    """relu(x − 0.2) − relu(x − 0.3) > −0.01, which intervals do not prove; the second certificate loses its proof."""
    model, images = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2)).eval(), torch.full((2, 1), 0.5)
    for parameter, values in zip(
        model.parameters(), ([[1.0], [1.0]], [-0.2, -0.3], [[1.0, -1.0], [0.0, 0.0]], [0.01, 0.0]), strict=True
    ):
        parameter.data.copy_(torch.tensor(values))
    run = lingraft.save(model, tmp_path / "run", (1,))
    eps, folder = torch.tensor([[0.3], [0.4]]), run.path / "certificates"
    lingraft.verify(model, images, [0, 0], eps=eps, workers=0, run=run, certificates=folder)
    _, second = sorted(folder.glob("*.cert"), key=_reach)
    second.write_bytes(encode(replace(read(second), trees=[])))
    found = lingraft.verify(model, images, [0, 0], eps=eps, workers=0, run=run, check=True)
    assert [result.checked for result in found] == [True, False]
    again = lingraft.verify(model, images, [0, 0], eps=eps, workers=0, run=run)
    assert [result.checked for result in again] == [True, False], "as it was kept"


def test_each_question_about_an_image_has_its_own_witness(tmp_path: Path) -> None:
    """In one call, and in another with the same radius and another range of values."""
    model, images = _positive_above(0.25), torch.full((2, 1, 1, 1), 0.5)
    run = lingraft.save(model, tmp_path / "run", (1, 1, 1))
    eps = torch.tensor([0.5, 0.26], dtype=torch.float64).view(2, 1, 1, 1)
    for clip in ((0.0, 1.0), (0.1, 1.0), (0.0, 1.0)):
        found = lingraft.verify(model, images, [0, 0], eps=eps, clip=clip, workers=0, run=run)
        assert [result.verdict for result in found] == ["falsified", "falsified"]
    records = read_lines(run.verdicts_path)
    assert len(records) == 3, "the second radius asks the same in both ranges; no witness was lost"
    names = {record["witness"] for record in records}
    assert len(names) == 3
    name = f"{radius(eps):.6g}".replace(" #", "-")
    assert f"witnesses/own-0-eps{name}.safetensors" in names, "the first has the usual name"
