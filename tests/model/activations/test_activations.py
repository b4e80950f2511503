"""Softsign, registered from outside: traced, bounded, verified, scored, grafted and exported like what is built in."""

import copy
import importlib
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import softsign
import torch
import torch.nn.functional as F
from softsign import SOFTSIGN
from torch import Tensor, nn

import lingraft
from lingraft import LingraftError
from lingraft.data import ImageSet
from lingraft.grafting.harm import Harm
from lingraft.grafting.instability import Instability
from lingraft.model.activations import KNOWN, Activation, activation, kind_of, register
from lingraft.model.activations.clipped import clamp
from lingraft.model.activations.exponential import elu
from lingraft.model.activations.relu import leaky_relu
from lingraft.model.activations.sigmoid import SIGMOID
from lingraft.model.sites import grafted_activations
from lingraft.solver.network import Network
from lingraft.training.differentiable import graph_of, interval_bounds


@pytest.fixture
def registered() -> Iterator[Activation]:
    yield register(SOFTSIGN)
    del KNOWN["softsign"]


class Functional(nn.Module):
    """Two inputs, three classes; softsign as a function and as a layer."""

    def __init__(self, seed: int):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second, self.last = nn.Linear(2, 8), nn.Linear(8, 6), nn.Linear(6, 3)
        self.softsign = nn.Softsign()
        for layer in (self.first, self.second, self.last):
            layer.weight.data *= 3

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.softsign(self.second(F.softsign(self.first(x)))))


def network(seed: int) -> nn.Module:
    """All classes are equal in the middle of the square, so that each has its part of it."""
    model = Functional(seed).double().eval()
    with torch.no_grad():
        model.last.bias -= model(torch.full((1, 2), 0.5, dtype=torch.float64))[0]
    return model


def grid(image: Tensor, eps: float) -> Tensor:
    steps = torch.linspace(-1, 1, 81, dtype=torch.float64)
    return (image + eps * torch.cartesian_prod(steps, steps)).clamp(0, 1)


def test_before_it_is_registered_it_is_refused() -> None:
    with pytest.raises(LingraftError, match=r"softsign.*Replace it with relu, leaky relu, .* or selu"):
        lingraft.sites(network(0), (2,))


def test_it_is_traced(registered: Activation) -> None:
    found = lingraft.sites(network(0), (2,))
    assert [(site.name, site.kind, site.shape) for site in found] == [
        ("softsign_2", "softsign", (8,)),
        ("softsign", "softsign", (6,)),
    ]


def test_other_arguments_than_the_record_s_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KNOWN, "elu", replace(KNOWN["elu"], family=None))
    layer = nn.Sequential(nn.Linear(2, 3), nn.ELU(2.0))
    with pytest.raises(LingraftError, match=r"elu with alpha=2\.0 is not supported: it is known for alpha=1\.0 only"):
        lingraft.sites(layer, (2,))


@pytest.mark.parametrize("method", ["intervals", "crown", "alpha-crown"])
def test_bounds_hold(registered: Activation, method: str) -> None:
    for seed in range(3):
        model, image = network(seed), torch.rand(2, dtype=torch.float64)
        found = lingraft.bounds(model, lingraft.Region(image - 0.3, image + 0.3), method)
        points = image + 0.3 * (2 * torch.rand(500, 2, dtype=torch.float64) - 1)
        with torch.no_grad():
            z = model.first(points)
            seen = {"softsign_2": z, "softsign": model.second(F.softsign(z))}
        for name, (lower, upper) in found.items():
            assert bool((seen[name] >= lower - 1e-9).all())
            assert bool((seen[name] <= upper + 1e-9).all())


@pytest.mark.parametrize("grafted", [False, True])
def test_verdicts_are_those_of_a_fine_grid(registered: Activation, grafted: bool) -> None:
    verdicts = []
    for seed in range(4):
        model = network(seed)
        if grafted:
            mask = {"softsign_2": torch.arange(8) % 2 == 0, "softsign": torch.arange(6) % 3 == 0}
            model = lingraft.graft(model, mask).eval()
        images = torch.rand(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            labels = model(images).argmax(1)
        for eps in (0.01, 0.2):
            results = lingraft.verify(model, images, labels, eps=eps, timeout=30, workers=0)
            for image, label, result in zip(images, labels, results, strict=True):
                with torch.no_grad():
                    kept = bool((model(grid(image, eps)).argmax(1) == label).all())
                if result.verdict == "verified":
                    assert kept
                elif result.verdict == "falsified":
                    assert result.witness is not None
                    assert int(model(result.witness[None].double()).argmax()) != label
                verdicts.append(result.verdict)
    assert verdicts.count("verified") >= 4
    assert verdicts.count("falsified") >= 2
    assert verdicts.count("unknown") <= 2


@pytest.mark.slow
def test_workers_get_to_know_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They import the module that its lines come from."""
    source = Path(softsign.__file__).read_text()
    text = "from lingraft.model.activations import register\n\nregister(SOFTSIGN)\n"
    (tmp_path / "my_softsign.py").write_text(f"{source}\n\n{text}")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("my_softsign")
    try:
        model, images = network(1), torch.rand(2, 2, dtype=torch.float64)
        labels = model(images).argmax(1)
        results = lingraft.verify(model, images, labels, eps=1e-3, timeout=60, workers=1)
        assert {result.verdict for result in results} == {"verified"}
    finally:
        del KNOWN["softsign"]


def test_what_a_script_registers_stays_in_its_process(registered: Activation, monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(lower: Tensor, upper: Tensor) -> lingraft.model.activations.Lines:
        return SOFTSIGN.lines(lower, upper)

    lines.__module__ = "__main__"
    monkeypatch.setitem(KNOWN, "softsign", replace(SOFTSIGN, lines=lines))
    with pytest.raises(LingraftError, match=r"registered in the script itself.*workers=0"):
        pickle.dumps(Network.from_module(network(0), (2,)))


def test_scores(registered: Activation) -> None:
    model = nn.Sequential(nn.Flatten(), network(0)).double()
    data = ImageSet(torch.rand(4, 1, 1, 2), torch.zeros(4, dtype=torch.long))
    for score in (Instability(0.2), Instability(0.2, "intervals"), Harm(0.2)):
        found = score.score(model, data)
        assert all(bool((values >= 0).all()) and bool((values > 0).any()) for values in found.values())
    counts = Instability(0.2).score(model, data)
    assert all(bool((values <= len(data)).all()) for values in counts.values())


def test_grafted_neurons_start_from_its_tangent_at_0(registered: Activation) -> None:
    model = network(0)
    grafted = lingraft.graft(model, {"softsign": torch.ones(6, dtype=torch.bool)}, input_shape=(2,))
    (site,) = grafted_activations(grafted).values()
    assert site.base is registered
    z = 1e-4 * torch.randn(5, 6, dtype=torch.float64)
    torch.testing.assert_close(site(z), F.softsign(z), rtol=0, atol=1e-7)
    assert grafted_activations(copy.deepcopy(grafted))["softsign"].base is registered


def test_differentiable_bounds(registered: Activation) -> None:
    model = lingraft.graft(network(2), {"softsign": torch.arange(6) % 2 == 0})
    image = torch.rand(1, 2, dtype=torch.float64)
    found = interval_bounds(graph_of(model), image - 0.1, image + 0.1, rounded=True)
    points = image + 0.1 * (2 * torch.rand(300, 2, dtype=torch.float64) - 1)
    with torch.no_grad():
        values = model.softsign(model.second(F.softsign(model.first(points))))
    assert bool((values >= found.last.lower).all())
    assert bool((values <= found.last.upper).all())


@pytest.mark.parametrize("form", ["output", "input"])
@pytest.mark.parametrize("share", [0, 2])
def test_it_is_exported_and_read_back(registered: Activation, tmp_path: Path, form: str, share: int) -> None:
    model = network(3).float()
    if share:
        model = lingraft.graft(model, {"softsign": torch.arange(6) % share == 0, "softsign_2": torch.arange(8) < 3})
    lingraft.export_onnx(model, tmp_path / "net.onnx", input_shape=(2,), form=form)
    back = lingraft.load_onnx(tmp_path / "net.onnx")
    assert [site.kind for site in lingraft.sites(back, (2,))] == ["softsign", "softsign"]
    assert len(grafted_activations(back)) == (2 if share else 0)
    x = torch.rand(20, 2)
    with torch.no_grad():
        torch.testing.assert_close(back(x), model.eval()(x), rtol=1e-4, atol=1e-4)


def test_one_that_onnx_does_not_have_is_not_exported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(KNOWN, "softsign", replace(SOFTSIGN, onnx=None))
    with pytest.raises(LingraftError, match="no operation for the activation 'softsign'"):
        lingraft.export_onnx(network(0), tmp_path / "net.onnx", input_shape=(2,))


def test_names_and_calls_are_taken_once(registered: Activation) -> None:
    with pytest.raises(LingraftError, match="'softsign' is known already"):
        register(SOFTSIGN)
    with pytest.raises(LingraftError, match="is 'sigmoid' already"):
        register(replace(SIGMOID, name="logistic", onnx=None))
    with pytest.raises(LingraftError, match="'square' is known already"):  # what products are written with
        register(replace(SOFTSIGN, name="square", onnx=None, modules=(), calls=()))


def test_a_record_that_does_not_hold_is_not_registered() -> None:
    with pytest.raises(LingraftError, match="its size is"):
        register(replace(SOFTSIGN, size=lambda size: 0.5))
    assert "softsign" not in KNOWN


def test_records_survive_copies_and_pickles() -> None:
    for record in (*KNOWN.values(), leaky_relu(0.37), elu(0.5), clamp(-1.0, None)):
        assert copy.deepcopy(record) is record
        if record.name != "prelu":  # which has weights of its own
            assert pickle.loads(pickle.dumps(record)) is record
            assert activation(kind_of(record)) is record
