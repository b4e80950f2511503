"""The verifier's own proofs: each becomes a certificate that checks, unless the verifier is wrong."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lingraft
from lingraft.checker.check import check
from lingraft.checker.format import Rejected, decode, encode
from lingraft.checker.onnx_reader import load_network
from lingraft.errors import LingraftError
from lingraft.formats.certificate_writer import CertificateWriter, claim_of_image
from lingraft.model.surgery import graft
from lingraft.solver import dual
from lingraft.solver.falsify import Falsifier
from lingraft.solver.network import Network
from lingraft.solver.request import Request
from lingraft.solver.verifier import Verifier
from lingraft.solver.worth import Pause, Worth
from lingraft.work.certify import Certifier

pytestmark = pytest.mark.slow

SHAPE, RADIUS = (1, 6, 6), 0.1


class Residual(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1)
        )
        self.last = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(x) + x)


def _plain() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4))


def _convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 2), nn.ReLU(), nn.Flatten(),
        nn.Linear(16, 10), nn.ReLU(), nn.Linear(10, 4),
    )  # fmt: skip


def _grafted() -> nn.Module:
    model = _convolutional().eval()
    generator = torch.Generator().manual_seed(3)
    masks = {site.name: torch.rand(site.shape, generator=generator) < 0.4 for site in lingraft.sites(model, SHAPE)}
    return graft(model, masks, slope=0.4, intercept=0.1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": _plain,
    "convolutional": _convolutional,
    "grafted": _grafted,
    "residual": lambda: nn.Sequential(nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.ReLU(), Residual(2), nn.Flatten(), nn.Linear(18, 4)),
    "leaky": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 14), nn.LeakyReLU(0.1), nn.Linear(14, 10), nn.LeakyReLU(0.3), nn.Linear(10, 4)),
    "clipped": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 14), nn.Hardtanh(-0.6, 1.4), nn.Linear(14, 10), nn.ReLU6(), nn.Linear(10, 4)),
    "prelu": lambda: nn.Sequential(nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.PReLU(3), nn.Flatten(), nn.Linear(27, 12), nn.PReLU(), nn.Linear(12, 4)),
    "max pool": lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, 3, 1), nn.Flatten(), nn.Linear(18, 8), nn.ReLU(), nn.Linear(8, 4)),
}  # fmt: skip


def question(model: nn.Module, seed: int, slack: float) -> Request:
    """Is the first output, and the sum of the others, at least what it is near an image, less a share of its range?"""
    generator = torch.Generator().manual_seed(seed)
    image = torch.rand(SHAPE, generator=generator)
    points = image + RADIUS * (2 * torch.randint(0, 2, (4000, *SHAPE), generator=generator) - 1)
    spec = torch.tensor([[1.0, 0, 0, 0], [0, -1, -1, 1]], dtype=torch.float64)
    with torch.no_grad():
        values = model(points).double() @ spec.t()
    reach = values.amax(0) - values.amin(0)
    offset = slack * reach - values.amin(0)
    return Request(
        model, image[None], None, lower=(image - RADIUS)[None], upper=(image + RADIUS)[None], constraints=(spec, offset)
    )


def made(name: str, seed: int) -> nn.Module:
    """With weights that are large enough for many open neurons."""
    torch.manual_seed(seed)
    model = MODELS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter *= 2.2
    return model.eval()


@pytest.mark.parametrize("name", MODELS)
def test_every_verified_verdict_has_a_certificate_that_checks(checked, tmp_path, name):
    verified = leaves = clips = facets = 0
    for seed in range(1, 3):
        model = made(name, seed)
        for form in ("output", "input") if name == "grafted" else ("output",):
            network = checked(model, SHAPE, form=form)
            for seen in (model, lingraft.load_onnx(tmp_path / "net.onnx")):
                for slack in (0.5, 0.38, 0.28, 0.2):
                    request = question(seen, seed, slack)
                    result = Verifier(request.network).verify(request.problem(0), 8, prove=True)
                    if result.verdict != "verified":
                        break
                    verified += 1
                    writer = CertificateWriter(request.network, network)
                    certificate = decode(encode(writer.certificate(claim_of_image(request, 0, {"seed": seed}), result)))
                    check(certificate, network)
                    leaves += certificate.leaves
                    clips += sum(len(tree.clips.nodes) for tree in certificate.trees)
                    facets += sum(len(tree.facets.sizes) > 0 for tree in certificate.trees)
    assert verified >= 4
    assert leaves >= verified
    assert clips
    assert facets


@pytest.mark.parametrize("levels", [1, 3])
def test_proofs_in_which_only_some_domains_were_clipped_or_bounded(levels, checked, monkeypatch):
    """Whether clipping pays is measured, so a search may begin with it late, or leave it out at times.

    And so is whether a domain is split several times before its parts are bounded.
    """
    late, calls = 3, 0
    monkeypatch.setattr(Worth, "levels", lambda *_: levels)

    def at_times(_: Pause) -> bool:
        nonlocal calls
        calls += 1
        return calls > late and calls % 2 == 0

    monkeypatch.setattr(Pause, "over", at_times)
    clips = splits = 0
    for seed in range(1, 5):
        model = made("convolutional", seed)
        network, request = checked(model, SHAPE), question(model, seed, 0.2)
        calls = 0
        result = Verifier(request.network).verify(request.problem(0), 20, prove=True)
        if result.verdict != "verified":
            continue
        certificate = CertificateWriter(request.network, network).certificate(claim_of_image(request, 0, {}), result)
        check(decode(encode(certificate)), network)
        clips += sum(len(tree.clips.nodes) for tree in certificate.trees)
        splits += result.domains // 2
    assert 0 < clips < splits


def test_wrong_proofs_of_a_wrong_verifier_are_rejected(checked, monkeypatch):
    """Lines above ReLUs that are too low: the verifier then proves what is false, and nobody else believes it."""
    right = dual.relax_relu

    def wrong(lower: Tensor, upper: Tensor) -> dual.Lines:
        lines = right(lower, upper)
        return lines._replace(upper_intercept=0.2 * lines.upper_intercept, upper_slope=0.7 * lines.upper_slope)

    monkeypatch.setattr(Falsifier, "search", lambda *_: None)
    monkeypatch.setattr(Falsifier, "descend", lambda *_, **__: None)
    believed = 0
    for seed in range(6):
        model = made("convolutional", seed)
        network = checked(model, SHAPE)
        request = question(model, seed, -0.02)  # a point that was sampled violates it
        monkeypatch.setattr(dual, "relax_relu", wrong)
        result = Verifier(request.network).verify(request.problem(0), 20, prove=True)
        monkeypatch.setattr(dual, "relax_relu", right)
        if result.verdict != "verified":
            continue
        believed += 1
        certificate = CertificateWriter(request.network, network).certificate(claim_of_image(request, 0, {}), result)
        with pytest.raises(Rejected):
            check(certificate, network)
    assert believed >= 2


def test_no_certificate_for_smooth_networks(tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Sigmoid(), nn.Linear(4, 4)).eval()
    request = question(model, 0, 0.9)
    result = Verifier(request.network).verify(request.problem(0), 20, prove=True)
    assert result.verdict == "verified"
    assert result.proof is None
    lingraft.export_onnx(model, tmp_path / "net.onnx", input_shape=SHAPE)
    certifier = Certifier(tmp_path / "net.onnx", tmp_path, checks=True)
    certifier.add("smooth", claim_of_image(request, 0, {}), result, request.network)
    assert "Sigmoid" in certifier.tally.missing["smooth"]
    assert certifier.known("smooth", claim_of_image(request, 0, {}))  # verifying it again would not help
    assert not list(tmp_path.glob("*.cert"))


def test_a_certificate_in_the_folder_is_used_again_only_for_the_same_claim(checked, tmp_path):
    model = made("plain", 1)
    checked(model, SHAPE)
    request = question(model, 1, 0.5)
    result = Verifier(request.network).verify(request.problem(0), 20, prove=True)
    claim = claim_of_image(request, 0, {})
    Certifier(tmp_path / "net.onnx", tmp_path, checks=False).add("one", claim, result, request.network)
    again = Certifier(tmp_path / "net.onnx", tmp_path, checks=True)
    assert again.known("one", claim)
    assert (again.tally.certificates, again.tally.checked) == (1, 1)
    assert not again.known("two", claim)
    assert not again.known("one", replace(claim, upper=claim.upper + 0.1))
    (tmp_path / "one.cert").write_bytes(b"damaged")
    assert not again.known("one", claim)


def test_rows_that_are_wider_than_a_chunk(checked):
    """A kernel of 41 × 41 on 64 channels: each neuron behind it is a row of 107,584 coefficients."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 64, 1), nn.ReLU(), nn.Conv2d(64, 2, 41), nn.ReLU(), nn.Flatten(), nn.Linear(2, 2)
    )
    with torch.no_grad():
        model[2].bias.zero_()
        image = torch.rand(1, 1, 41, 41)
        model[2].bias.copy_(-model[:3](image).flatten())  # both open
        label = model(image).argmax(1)
    network = checked(model, (1, 41, 41))
    request = Request(model, image, label, eps=0.0005)
    result = Verifier(request.network).verify(request.problem(0), 60, prove=True)
    assert result.verdict == "verified"
    certificate = CertificateWriter(request.network, network).certificate(claim_of_image(request, 0, {}), result)
    check(decode(encode(certificate)), network)


def test_another_file_is_noticed(checked):
    torch.manual_seed(0)
    network = checked(_plain(), SHAPE)
    other = Network.from_module(_convolutional().eval(), SHAPE)
    with pytest.raises(LingraftError, match="activations"):
        CertificateWriter(other, network)


def test_public_problems(problems_folder):
    """The first verified problems of two networks; benchmarks/certificates.py does all of them."""
    for folder, images in (("cifar_cnn_a_adv", (1, 5)), ("oval_base", (0,))):
        path = problems_folder / folder
        with np.load(path / "problems.npz") as problems:
            given = {name: torch.from_numpy(problems[name]) for name in ("image", "label", "lower", "upper")}
        model = lingraft.load_onnx(path / "model.onnx")
        request = Request(model, given["image"], given["label"], lower=given["lower"], upper=given["upper"])
        network = load_network(path / "model.onnx")
        for i in images:
            result = Verifier(request.network).verify(request.problem(i), 60, seed=i, prove=True)
            assert result.verdict == "verified"
            certificate = CertificateWriter(request.network, network).certificate(
                claim_of_image(request, i, {}), result
            )
            content = encode(certificate)
            check(decode(content), network)
            assert len(content) < 200_000 + 5_000 * certificate.leaves
