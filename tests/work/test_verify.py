"""`lingraft.verify`: what it takes, what it gives, and what it refuses."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lingraft
from lingraft import LingraftError
from lingraft.checker.format import read
from lingraft.data import load
from lingraft.pool.images import verify_each
from lingraft.pool.place import HERE
from lingraft.solver.confirmation import checked
from lingraft.solver.request import Limits, Request
from lingraft.solver.verifier import Result, Verifier
from lingraft.work.keeping import Tally

EPS = 0.08


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    data = load("digits", "test").take(40)
    return data.pixels(), data.labels


@pytest.fixture(scope="module")
def results(digits_net: nn.Module, digits: tuple[Tensor, Tensor]) -> list[Result]:
    return lingraft.verify(digits_net, *digits, eps=EPS, timeout=60, workers=0)


def hard_problem() -> tuple[nn.Module, Tensor, tuple[Tensor, Tensor]]:
    """A random network, an image and a constraint that holds by very little: it takes far longer than a test may."""
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(24, 120), nn.ReLU(), nn.Linear(120, 120), nn.ReLU(), nn.Linear(120, 60), nn.ReLU(), nn.Linear(60, 2)
    ).eval()
    image = torch.full((1, 24), 0.5)
    row = torch.tensor([[1.0, -1.0]])
    with torch.no_grad():
        lowest = min(float((model(torch.rand(4096, 24)) @ row.t()).min()) for _ in range(20))
    return model, image, (row, torch.tensor([2 * abs(lowest)]))


def test_every_kind_of_verdict(digits_net: nn.Module, digits: tuple[Tensor, Tensor], results: list[Result]) -> None:
    images, labels = digits
    found = Counter(result.verdict for result in results)
    assert set(found) == {"verified", "falsified", "misclassified"}, found
    assert [result.index for result in results] == list(range(40))
    with torch.no_grad():
        right = (digits_net(images).argmax(1) == labels).tolist()
    for result, image, label, correct in zip(results, images, labels.tolist(), right, strict=True):
        assert (result.verdict == "misclassified") == (not correct)
        assert (result.label, result.eps, result.reason, result.error) == (label, EPS, None, None)
        assert result.neurons == 88
        assert result.against == [j for j in range(10) if j != label]
        if result.verdict == "verified":
            assert result.stage in ("intervals", "crown", "alpha", "branch")
            assert sum(result.unstable.values()) < 88
            assert result.witness is None
            noise = image + EPS * (2 * torch.rand(200, *image.shape) - 1)
            assert (digits_net(noise.clamp(0, 1)).argmax(1) == label).all()
        if result.verdict == "falsified":
            assert result.witness is not None
            assert result.witness.shape == image.shape
            assert result.witness.dtype == torch.float32
            low = (image.double() - EPS).clamp(min=0)
            high = (image.double() + EPS).clamp(max=1)
            assert bool((result.witness.double() >= low).all() and (result.witness.double() <= high).all())
            assert int(digits_net(result.witness[None]).argmax()) != label
    assert {"attack", "crown", "forward"} < {r.stage for r in results}, "also one of alpha and branch"


def test_bounds_get_better_with_optimization(results: list[Result]) -> None:
    optimized = [result for result in results if result.alpha]
    assert optimized
    for result in optimized:
        assert len(result.crown) == len(result.alpha) == 9
        assert all(a >= c for c, a in zip(result.crown, result.alpha, strict=True))
    assert any(min(result.alpha) > min(result.crown) for result in optimized)


def test_a_box_gives_what_the_ball_gives(
    digits_net: nn.Module, digits: tuple[Tensor, Tensor], results: list[Result]
) -> None:
    images, labels = (tensor[:12] for tensor in digits)
    lower, upper = ((images.double() + sign * EPS).clamp(0, 1) for sign in (-1, 1))
    boxes = lingraft.verify(digits_net, images, labels.tolist(), lower=lower, upper=upper, timeout=60, workers=0)
    assert [r.verdict for r in boxes] == [r.verdict for r in results[:12]]
    assert all(r.eps is None for r in boxes)
    middle = lingraft.verify(digits_net, None, labels, lower=lower, upper=upper, timeout=60, workers=0)
    decided = [(a.verdict, b.verdict) for a, b in zip(middle, boxes, strict=True)]
    assert ("verified", "falsified") not in decided
    assert ("falsified", "verified") not in decided


def test_boxes_are_taken_as_they_are() -> None:
    """In the network's own space, outside [0, 1], and not cut to it."""
    model = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    with torch.no_grad():  # logits: (max(x − 3, 0), 0.5) over x ≥ 0
        model[0].weight.fill_(1.0)
        model[0].bias.copy_(torch.tensor([-3.0, 0, 0, 0]))
        model[2].weight.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0]]))
        model[2].bias.copy_(torch.tensor([0.0, 0.5]))
    image, label = torch.tensor([[3.0]]), [1]
    low = torch.tensor([[-2.0]])
    inside = lingraft.verify(model, image, label, lower=low, upper=torch.tensor([[3.4]]), workers=0)[0]
    beyond = lingraft.verify(model, image, label, lower=low, upper=torch.tensor([[3.6]]), workers=0)[0]
    assert (inside.verdict, beyond.verdict) == ("verified", "falsified")
    ball = lingraft.verify(model, image, label, eps=0.6, clip=(-2, 3.4), workers=0)[0]
    wide = lingraft.verify(model, image, label, eps=0.6, clip=None, workers=0)[0]
    assert (ball.verdict, wide.verdict) == ("verified", "falsified")


def test_constraints(digits_net: nn.Module, digits: tuple[Tensor, Tensor], results: list[Result]) -> None:
    """The margins of one label as constraints give the verdicts of that label; labels are then only a note."""
    images, labels = digits
    chosen = (labels == int(labels[0])).nonzero().flatten()
    label = int(labels[0])
    matrix = -torch.eye(10)
    matrix[:, label] += 1
    matrix = matrix[torch.arange(10) != label]
    given = lingraft.verify(
        digits_net, images[chosen], None, eps=EPS, constraints=(matrix, torch.zeros(9)), timeout=60, workers=0
    )
    assert [r.verdict for r in given] == [results[i].verdict for i in chosen.tolist()]
    assert all(r.label is None and r.against == list(range(9)) for r in given)
    never = lingraft.verify(
        digits_net, images[:2], labels[:2], eps=EPS, constraints=(torch.zeros(1, 10), torch.tensor([-1.0])), workers=0
    )
    assert [(r.verdict, r.label) for r in never] == [
        ("misclassified", int(labels[0])),
        ("misclassified", int(labels[1])),
    ]
    always = lingraft.verify(digits_net, images[:2], eps=EPS, constraints=(torch.zeros(1, 10), [1.0]), workers=0)
    assert [r.verdict for r in always] == ["verified", "verified"]


def test_no_radius_is_the_image_itself(digits_net: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
    images, labels = digits
    found = lingraft.verify(digits_net, images, labels, eps=0.0, workers=0)
    right = (digits_net(images).argmax(1) == labels).tolist()
    assert [r.verdict for r in found] == ["verified" if correct else "misclassified" for correct in right]


def test_float64_models_double_and_callers_without_gradients(
    digits_net: nn.Module, digits: tuple[Tensor, Tensor], results: list[Result]
) -> None:
    images, labels = (tensor[:10] for tensor in digits)
    expected = [r.verdict for r in results[:10]]
    with torch.inference_mode():
        found = lingraft.verify(digits_net, images.clone(), labels, eps=EPS, double=True, workers=0)
    assert [r.verdict for r in found] == expected
    import copy

    wide = lingraft.verify(copy.deepcopy(digits_net).double(), images, labels, eps=EPS, workers=0)
    assert [r.verdict for r in wide] == expected
    assert all(r.witness.dtype == torch.float64 for r in wide if r.witness is not None)


@pytest.mark.slow
def test_the_time_limit_is_kept() -> None:
    model, image, constraints = hard_problem()
    begun = time.monotonic()
    (result,) = lingraft.verify(model, image, eps=0.5, constraints=constraints, timeout=2, workers=0)
    assert (result.verdict, result.reason, result.stage) == ("unknown", "time", "branch")
    assert 1.9 <= result.seconds <= 2 * 1.02 + 1
    assert time.monotonic() - begun <= 2 * 1.02 + 2
    assert result.domains > 0


def test_what_does_not_fit_is_unknown_and_the_others_go_on(
    digits_net: nn.Module, digits: tuple[Tensor, Tensor], results: list[Result]
) -> None:
    found = lingraft.verify(digits_net, *digits, eps=EPS, memory=1000, workers=0)
    reasons = Counter((r.verdict, r.reason) for r in found)
    assert reasons["unknown", "memory"] > 0
    assert reasons["falsified", None] > 0
    for before, now in zip(results, found, strict=True):
        assert now.verdict in (before.verdict, "unknown")


def test_an_exception_is_not_an_answer(
    digits_net: nn.Module, digits: tuple[Tensor, Tensor], results: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    verify_one, calls = Verifier.verify, 0

    def fails_first(self: Verifier, *arguments: Any) -> Result:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError("planted")
        return verify_one(self, *arguments)

    monkeypatch.setattr(Verifier, "verify", fails_first)
    found = lingraft.verify(digits_net, *(tensor[:6] for tensor in digits), eps=EPS, workers=0)
    failed = [r for r in found if r.reason == "error"]
    assert len(failed) == 1
    assert "ZeroDivisionError: planted" in str(failed[0].error)
    assert all(now.verdict in (before.verdict, "unknown") for before, now in zip(results, found, strict=False))


@pytest.mark.parametrize("what", ["outside", "harmless", "missing"])
def test_a_witness_that_the_model_does_not_confirm_is_no_answer(
    digits_net: nn.Module, digits: tuple[Tensor, Tensor], results: list[Result], what: str
) -> None:
    i = next(r.index for r in results if r.verdict == "falsified")
    request = Request(digits_net, *digits, eps=EPS)
    good = results[i].witness
    assert good is not None
    witness = {"outside": good + 1e-6 + 2 * EPS, "harmless": digits[0][i], "missing": None}[what]
    result = checked(request, i, Result("falsified", "attack", witness=witness))
    assert (result.verdict, result.reason, result.witness) == ("unknown", "numerical", None)
    assert result.error
    assert checked(request, i, Result("falsified", "attack", witness=good)).verdict == "falsified"


def test_images_that_do_not_exist_are_refused_with_what_exists(digits_net: nn.Module) -> None:
    for images in (354, slice(0, 5000), slice(350, 354), slice(400, None), 0):
        with pytest.raises(lingraft.LingraftError, match="it has 353"):
            lingraft.verify(digits_net, images, data="digits", eps=EPS)


def test_no_images_give_no_results(digits_net: nn.Module) -> None:
    assert lingraft.verify(digits_net, torch.zeros(0, 1, 8, 8), [], eps=0.1) == []


def test_results_come_as_they_finish_and_can_be_asked_for_singly(
    digits_net: nn.Module, digits: tuple[Tensor, Tensor], results: list[Result]
) -> None:
    request = Request(digits_net, *digits, eps=EPS)
    found = list(verify_each(request, Limits(60), HERE, which=[7, 3], indices=range(100, 100 + len(request))))
    assert {(i, r.index) for i, r in found} == {(7, 107), (3, 103)}
    assert {i: r.verdict for i, r in found} == {i: results[i].verdict for i in (3, 7)}


def test_progress_says_what_was_found(results: list[Result]) -> None:
    tally = Tally()
    for result in results:
        tally.add(result)
    verified = sum(r.verdict == "verified" for r in results)
    assert f"verified {verified}, " in str(tally)
    assert f"VA so far {verified / 40:.1%}" in str(tally)


def sums_net() -> nn.Module:
    """One output, relu(x₀) + relu(x₁) − relu(x₂): exact for positive features."""
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(3))
        model[0].bias.zero_()
        model[2].weight.copy_(torch.tensor([[1.0, 1.0, -1.0]]))
        model[2].bias.zero_()
    return model


def test_every_feature_has_a_radius_and_a_range_of_its_own() -> None:
    """The output of the sums is known: what is asked for of it is proven exactly up to the corner of the box."""
    model, image = sums_net(), torch.tensor([[10.0, 5.0, 2.0]])
    eps = torch.tensor([1.0, 0.0, 0.5])
    clip = (torch.tensor([9.5, 0.0, 0.0]), torch.tensor([20.0, 20.0, 2.25]))
    lowest = 9.5 + 5.0 - 2.25  # 10 − 1 is below the range, 2 + 0.5 above it

    def ask(above: float, **region: Any) -> str:
        constraints = (torch.ones(1, 1), torch.tensor([-above]))
        return lingraft.verify(model, image, constraints=constraints, workers=0, **region)[0].verdict

    assert ask(lowest - 0.01, eps=eps, clip=clip) == "verified"
    assert ask(lowest + 0.01, eps=eps, clip=clip) == "falsified"
    assert ask(10.0 - 1 + 5 - 2.5 - 0.01, eps=eps, clip=None) == "verified"
    assert ask(10.0 - 1 + 5 - 2.5 + 0.01, eps=eps, clip=None) == "falsified"
    assert ask(10.0 - 1 + 4 - 3 - 0.01, eps="2/2", clip=(0, 20)) == "verified"
    assert ask(10.0 - 1 + 4 - 3 + 0.01, eps=1, clip=(0, 20)) == "falsified"


def test_every_image_has_a_radius_and_constraints_of_its_own() -> None:
    """Regression: y − 1 < f(x) < y + 1 in balls of their own, of which the sum of radii says whether it holds."""
    model = sums_net()
    images = torch.tensor([[10.0, 5.0, 2.0], [3.0, 3.0, 3.0], [8.0, 1.0, 4.0], [8.0, 1.0, 4.0]])
    targets = images @ torch.tensor([1.0, 1.0, -1.0])
    both = torch.tensor([[1.0], [-1.0]])
    offsets = torch.stack([1 - targets, 1 + targets], 1)
    eps = torch.tensor([0.3, 0.4, 0.3, 0.4])  # three features: 0.9 and 1.2
    for constraints in ((both, offsets), (both.expand(4, 2, 1), offsets)):
        found = lingraft.verify(model, images, eps=eps, clip=None, constraints=constraints, workers=0)
        assert [r.verdict for r in found] == ["verified", "falsified", "verified", "falsified"]
    each = torch.full((4, 3), 0.3)
    each[1, 2] = 0.5
    found = lingraft.verify(model, images, eps=each, clip=None, constraints=(both, offsets), workers=0)
    assert [r.verdict for r in found] == ["verified", "falsified", "verified", "verified"]


def test_proofs_in_boxes_of_tensors_have_certificates(tmp_path: Path) -> None:
    """The certificate of a ball with tensors is about the box that they make, exactly."""
    torch.manual_seed(0)
    model, images = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval(), 5 * torch.randn(3, 4)
    labels, eps = model(images).argmax(1), torch.tensor([0.01, 0.02, 0.0, 0.1])
    clip = images.amin(0) - 1, images.amax(0)
    found = lingraft.verify(
        model, images, labels, eps=eps, clip=clip, workers=0, certificates=tmp_path / "certificates", check=True
    )
    assert [(r.verdict, r.checked) for r in found] == [("verified", True)] * 3
    boxes = [read(path) for path in sorted((tmp_path / "certificates").glob("*.cert"))]
    for box, image in zip(boxes, images.double(), strict=True):
        assert torch.equal(torch.tensor(box.lower), torch.maximum(image - eps, clip[0]))
        assert torch.equal(torch.tensor(box.upper), torch.minimum(image + eps, clip[1]))


def test_images_in_any_form(digits_net: nn.Module, results: list[Result]) -> None:
    test = load("digits", "test")
    few = test.take(4)
    expected = [result.verdict for result in results[:4]]
    pairs = torch.utils.data.TensorDataset(few.images, few.labels)
    settings: dict[str, Any] = {"eps": EPS, "timeout": 60, "workers": 0}
    for images in (few, (few.images, few.labels), pairs, torch.utils.data.DataLoader(pairs, batch_size=3)):
        assert [r.verdict for r in lingraft.verify(digits_net, images, **settings)] == expected
    assert [r.verdict for r in lingraft.verify(digits_net, few.images.tolist(), few.labels, **settings)] == expected
    assert [r.verdict for r in lingraft.verify(digits_net, "1:3", data=test, **settings)] == expected[1:3]
    everything = lingraft.verify(digits_net, "all", data=few, **settings)
    assert [r.verdict for r in everything] == expected
    with pytest.raises(LingraftError, match="are not images"):
        lingraft.verify(digits_net, "a few", data=few, **settings)
    fine = (255 * few.images).round().to(torch.uint8)
    bytes_, floats = (lingraft.verify(digits_net, images, few.labels, **settings) for images in (fine, fine / 255))
    assert [r.verdict for r in bytes_] == [r.verdict for r in floats]
