"""Activations of everyday models, from the model to sites, verdicts, grafting, ONNX and back."""

from pathlib import Path

import onnxruntime
import pytest
import torch
from everyday import EVERYDAY, LINES, network
from torch import Tensor, nn

import lingraft
from lingraft.data import ImageSet
from lingraft.grafting.harm import Harm
from lingraft.grafting.instability import Instability
from lingraft.model.activations import KNOWN
from lingraft.model.sites import grafted_activations
from lingraft.solver import bab, verifier
from lingraft.solver.network import Network
from lingraft.training.differentiable import crown_lower, graph_of, interval_bounds
from lingraft.training.differentiable.intervals import Interval

GRID = torch.cartesian_prod(*[torch.linspace(-1, 1, 61, dtype=torch.float64)] * 2)


def test_every_known_activation_is_here() -> None:
    assert {kind for kind, _ in EVERYDAY.values()} | {"relu", "leaky_relu", "sigmoid", "tanh"} == set(KNOWN)


def _kept(model: nn.Module, image: Tensor, label: Tensor, eps: float) -> bool:
    """Whether the label is that of all points of a fine grid over the ball."""
    with torch.no_grad():
        return bool((model((image + eps * GRID).clamp(0, 1)).argmax(1) == label).all())


def _radius(model: nn.Module, image: Tensor, label: Tensor) -> float:
    """How far the label goes, on a grid: from below, up to 5 %."""
    eps = 0.3
    while eps > 0.005 and not _kept(model, image, label, eps):
        eps *= 0.95
    return eps


def _clear(model: nn.Module, count: int) -> Tensor:
    """Images that are not right at a boundary: of twenty, those with the largest margins."""
    images = torch.rand(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    first, second = model(images.clone()).topk(2, dim=1).values.unbind(1)
    return images[(first - second).argsort(descending=True)[:count]]


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERYDAY)
def test_all_that_can_be_done_with_it(name: str, tmp_path: Path) -> None:
    kind, _ = EVERYDAY[name]
    model = network(name, 2)
    found = lingraft.sites(model, (2,))
    assert [(site.kind, site.shape) for site in found] == [(kind, (8,)), (kind, (6,))]
    exact = network(name, 2).double()
    _require_verdicts(exact, _clear(exact, 1))
    images, labels = torch.rand(8, 2), torch.arange(8) % 3
    mask = {site.name: torch.arange(site.neurons) % 3 == 0 for site in found}
    grafted = lingraft.graft(model, mask, input_shape=(2,))
    _take_a_step(grafted, images, labels)
    for shown, saved in ((model, "plain.onnx"), (grafted.eval(), "grafted.onnx")):
        lingraft.export_onnx(shown, tmp_path / saved, input_shape=(2,))
        session = onnxruntime.InferenceSession(tmp_path / saved, providers=["CPUExecutionProvider"])
        back = lingraft.load_onnx(tmp_path / saved)
        for image in 4 * torch.randn(10, 1, 2):
            ours = shown(image.clone()).detach()
            (theirs,) = session.run(None, {"input": image.numpy()})
            torch.testing.assert_close(torch.from_numpy(theirs), ours, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(back(image.clone()).detach(), ours, rtol=1e-4, atol=1e-4)


def _require_verdicts(model: nn.Module, images: Tensor) -> None:
    """Verified as far as a fine grid says, and no farther; where it is falsified, the witness is one."""
    labels = model(images.clone()).argmax(1)
    for image, label in zip(images, labels, strict=True):
        radius = _radius(model, image, label)
        near = lingraft.verify(model, image[None], label[None], eps=0.96 * radius, timeout=60, workers=0)[0]
        assert near.verdict == "verified"
        far = lingraft.verify(model, image[None], label[None], eps=1.1 * radius, timeout=60, workers=0)[0]
        if far.verdict == "falsified":
            assert far.witness is not None
            assert int(model(far.witness[None].double()).argmax()) != label
        else:
            assert far.verdict == "verified"
            assert _kept(model, image, label, 1.1 * radius)


def _take_a_step(grafted: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Lines and weights move, those of a PReLU as well."""
    before = [p.detach().clone() for p in grafted.parameters()]
    optimizer = torch.optim.SGD(grafted.train().parameters(), lr=0.1)
    nn.functional.cross_entropy(grafted(images), labels).backward()
    optimizer.step()
    moved = [p.grad is None or bool((p != b).any()) for p, b in zip(grafted.parameters(), before, strict=True)]
    assert all(moved)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gelu", "hardswish", "softplus_beta"])
def test_splits_prove_what_bounds_do_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close to the boundary, in wider networks, no verdict without splits; all verdicts are those of the grid."""
    monkeypatch.setattr(bab, "TIGHTENED", 0)  # which would prove some of these before a split, as would steps on α
    monkeypatch.setattr(bab, "MOST_STEPS", 0)
    monkeypatch.setattr(verifier, "ALPHA_STEPS", 0)
    domains = 0
    for seed in range(3):
        model = network(name, seed, 4.0).double()
        image = torch.rand(1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        label = model(image.clone()).argmax(1)
        radius = _radius(model, image[0], label[0])
        result = lingraft.verify(model, image, label, eps=0.98 * radius, timeout=60, workers=0)[0]
        assert result.verdict == "verified"
        domains += result.domains
    assert domains > 0


@pytest.mark.parametrize("name", EVERYDAY)
def test_bounds_for_training_hold_and_have_gradients(name: str) -> None:
    model = network(name, 4).double()
    model = lingraft.graft(model, {lingraft.sites(model, (2,))[1].name: torch.arange(6) % 3 == 0})
    image = torch.full((1, 2), 0.4, dtype=torch.float64)
    box = Interval(image - 0.15, image + 0.15)
    points = (image + 0.15 * GRID).clone()
    with torch.no_grad():
        logits = model(points.clone())
    graph = graph_of(model)
    found = interval_bounds(graph, *box)
    objective = torch.tensor([[1.0, -1.0, 0.5]], dtype=torch.float64)
    crown = crown_lower(graph, found, box, objective)
    assert float(crown.detach()) <= float((logits @ objective[0]).min()) + 1e-9
    gradients = torch.autograd.grad(crown.sum() + found.last.lower.sum(), list(model.parameters()), allow_unused=True)
    assert all(bool(torch.isfinite(g).all()) for g in gradients if g is not None)
    assert sum(bool(g.any()) for g in gradients if g is not None) >= 4
    _require_no_wider(model, box, found.sites, name)


def _require_no_wider(model: nn.Module, box: Interval, intervals: dict[str, Interval], name: str) -> None:
    """The verifier's bounds lie within those of training; what falls is a sum for it, which intervals do not see."""
    sums = name in ("abs", "prelu_channels")
    for site, (lower, upper) in lingraft.bounds(model, lingraft.Region(*(end[0] for end in box))).items():
        assert sums or bool((lower >= intervals[site].lower[0] - 1e-9).all())
        assert sums or bool((upper <= intervals[site].upper[0] + 1e-9).all())


@pytest.mark.parametrize("name", ["relu6", "hardsigmoid", "gelu"])
def test_scores_are_one_number_a_neuron(name: str) -> None:
    """Also where an activation has two bends: unstable if one of them is, and at most once for an image."""
    model = nn.Sequential(nn.Flatten(), network(name, 1, 12.0))
    data = ImageSet(torch.rand(3, 1, 1, 2), torch.zeros(3, dtype=torch.long))
    for score in (Instability(0.3), Harm(0.3)):
        found = score.score(model, data)
        assert [values.shape for values in found.values()] == [(8,), (6,)]
        assert all(bool((values >= 0).all()) for values in found.values())
        assert any(bool((values > 0).any()) for values in found.values())
    assert all(bool((values <= 3).all()) for values in Instability(0.3).score(model, data).values())
    assert Network.from_module(model.eval(), (1, 1, 2)).neurons == 14


@pytest.mark.parametrize("name", LINES)
def test_verified_verdicts_have_certificates(name: str, tmp_path: Path) -> None:
    for grafted in (False, True):
        model = network(name, 5)
        if grafted:
            mask = {site.name: torch.arange(site.neurons) % 3 == 0 for site in lingraft.sites(model, (2,))}
            model = lingraft.graft(model, mask).eval()
        images = torch.rand(4, 2, generator=torch.Generator().manual_seed(1))
        labels = model(images.clone()).argmax(1)
        results = lingraft.verify(
            model, images, labels, eps=0.03, workers=0, timeout=30, certificates=tmp_path / str(grafted), check=True
        )
        verified = [result for result in results if result.verdict == "verified"]
        assert verified
        assert all(result.checked for result in verified)


def test_there_are_no_certificates_for_smooth_ones(tmp_path: Path) -> None:
    model, images = network("silu", 5), torch.full((1, 2), 0.2)
    labels = model(images).argmax(1)
    (result,) = lingraft.verify(model, images, labels, eps=1e-3, workers=0, certificates=tmp_path)
    assert (result.verdict, result.certificate) == ("verified", False)


def test_weights_of_a_prelu_are_kept_in_its_grafted_site() -> None:
    model = network("prelu_channels", 0)
    sites = lingraft.sites(model, (2,))
    grafted = lingraft.graft(model, {sites[0].name: torch.arange(8) < 3})
    (site,) = grafted_activations(grafted).values()
    assert site.mask.shape == (8,)
    assert torch.equal(site.weight, torch.linspace(-0.3, 1.4, 8))
    with torch.no_grad():
        site.weight += 0.1
    again = lingraft.graft(model, {sites[0].name: torch.arange(8) < 3})
    again.load_state_dict(grafted.state_dict())
    x = torch.randn(5, 2)
    torch.testing.assert_close(again(x), grafted(x))
    assert not torch.equal(again(x), lingraft.graft(model, {sites[0].name: torch.arange(8) < 3})(x))
    state = grafted.state_dict()
    state[f"{sites[0].name}.weight"] = torch.zeros(3)
    with pytest.raises(RuntimeError, match="not that of the model"):
        again.load_state_dict(state)
