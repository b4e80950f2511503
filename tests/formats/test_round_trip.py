"""From a model over grafting, export and import to the same outputs and the same verdicts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import lingraft
from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.onnx_network import OnnxNetwork
from lingraft.formats.vnnlib_write import write_vnnlib
from lingraft.model import zoo
from lingraft.model.sites import grafted_activations, sites
from lingraft.model.surgery import graft
from lingraft.solver.request import Limits
from lingraft.work.vnncomp.instance import Instance

pytestmark = pytest.mark.slow

#: verdicts of lingraft.verify as answers of VNN-COMP
WORDS = {"verified": "unsat", "falsified": "sat"}


def half_grafted(model: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    masks = {site.name: torch.rand(site.shape, generator=generator) < 0.5 for site in sites(model, shape)}
    return graft(model, masks, 0.4, 0.1)


def answers(model: nn.Module, images: torch.Tensor, radii: list[float], folder: Path) -> list[str]:
    """What the exported network and properties give, for each image and radius."""
    export_onnx(model, folder / "net.onnx", input_shape=tuple(images.shape[1:]))
    network = OnnxNetwork(folder / "net.onnx")
    labels = model(images).argmax(1)
    found = []
    for image, label in zip(images, labels.tolist(), strict=True):
        for eps in radii:
            write_vnnlib(
                folder / "p.vnnlib", (image - eps).clamp(0, 1).numpy(), (image + eps).clamp(0, 1).numpy(), label, 10
            )
            found.append(Instance.read(network, folder / "p.vnnlib").answer(Limits(60.0)).word)
    return found


@torch.no_grad()
@pytest.mark.parametrize("name", ["conv-big", "cnn-b", "resnet-4b", "sigmoid-cnn", "digits-cnn"])
def test_zoo(name: str, tmp_path: Path) -> None:
    """A radius that is easily proven and one that is easily broken."""
    torch.manual_seed(0)
    shape = zoo.MODELS[name].input_shape
    model = half_grafted(zoo.build(name, mean=[0.4] * shape[0], std=[0.3] * shape[0]).eval(), shape)
    image, radii = torch.rand(1, *shape), [1e-5, 0.5]
    found = answers(model, image, radii, tmp_path)
    lower, upper = (torch.cat([(image + sign * eps).clamp(0, 1) for eps in radii]) for sign in (-1, 1))
    labels = model(image).argmax(1).expand(2)
    results = lingraft.verify(model, image.expand(2, *shape), labels, lower=lower, upper=upper, workers=0)
    assert found == [WORDS[result.verdict] for result in results] == ["unsat", "sat"]


def test_conv_huge_round_trip(round_trip) -> None:
    """The largest one: outputs and masks."""
    torch.manual_seed(0)
    shape = zoo.MODELS["conv-huge"].input_shape
    model = half_grafted(zoo.build("conv-huge").eval(), shape)
    back = round_trip(model, shape)
    masks = [[site.mask for site in grafted_activations(m).values()] for m in (model, back)]
    assert all(torch.equal(a, b) for a, b in zip(*masks, strict=True))


@torch.no_grad()
def test_trained_grafted_digits(digits_net: nn.Module, tmp_path: Path) -> None:
    """A trained network on real images, with radii around where verdicts change."""
    from lingraft.data import load

    model = half_grafted(digits_net, (1, 8, 8))
    images = load("digits", "test").pixels(slice(6))
    radii = [0.01, 0.04, 0.1]
    found = answers(model, images, radii, tmp_path)
    expected = []
    for image in images:
        label = model(image[None]).argmax(1)
        expected += [WORDS[lingraft.verify(model, image[None], label, eps=e, workers=0)[0].verdict] for e in radii]
    assert found == expected
    assert set(found) == {"sat", "unsat"}


def test_public_grafted_network_gives_the_same_verdicts_after_another_export(problems_folder, tmp_path) -> None:
    """Load, graft more, export, import: outputs and answers of the model itself."""
    problems = np.load(problems_folder / "cifar_cnn_a_adv" / "problems.npz")
    module = lingraft.load_onnx(problems_folder / "cifar_cnn_a_adv" / "model.onnx")
    model = half_grafted(module, module.input_shape)
    export_onnx(model, tmp_path / "net.onnx", input_shape=module.input_shape)
    images = torch.from_numpy(problems["image"][:4])
    again = lingraft.load_onnx(tmp_path / "net.onnx")
    with torch.no_grad():
        torch.testing.assert_close(again(images), model(images), rtol=1e-4, atol=1e-5)
        labels = model(images).argmax(1)
    lower, upper = (torch.from_numpy(problems[name][:4]) for name in ("lower", "upper"))
    ours, theirs = (
        lingraft.verify(m, images, labels, lower=lower, upper=upper, workers=0, timeout=20) for m in (model, again)
    )
    assert [r.verdict for r in ours] == [r.verdict for r in theirs]


def test_dead_neurons_cost_the_verifier_nothing(make_onnx) -> None:
    """relu(x)·0: after reading, no neuron of it is left that could be unstable."""
    keep = np.array([[1, 0, 0, 1]], np.float32)
    nodes = [("Relu", "x", "h"), ("Mul", "h keep", "k"), ("Gemm", "k w", "y", {"transB": 1})]
    path = make_onnx(nodes, [1, 4], {"keep": keep, "w": np.ones((2, 4), np.float32)})
    (result,) = lingraft.verify(
        lingraft.load_onnx(path),
        torch.ones(1, 4),
        lower=-torch.ones(1, 4),
        upper=torch.ones(1, 4),
        constraints=(torch.ones(1, 2), torch.tensor([0.5])),
        workers=0,
    )
    assert result.verdict == "verified"
    assert sum(result.unstable.values()) == 2
