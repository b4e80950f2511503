"""Bounds of the checker: they hold for real inputs, and are those of the verifier up to rounding."""

import numpy as np
import pytest
import torch
from simple_prover import prove
from torch import nn

import lingraft
from lingraft.checker.bounds import Bounds
from lingraft.checker.check import check
from lingraft.checker.collapse import collapse
from lingraft.checker.dual import Columns, below
from lingraft.checker.format import Certificate, Rejected
from lingraft.checker.network import inner
from lingraft.checker.onnx_reader import load_network
from lingraft.solver.bounds import bound_sites, margin_crown
from lingraft.solver.budget import Budget
from lingraft.solver.network import Network
from lingraft.solver.region import Region


class Branches(nn.Module):
    """Residual, dilated, strided, padded, pooled: windows of all kinds meet."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.left = nn.Sequential(
            nn.Conv2d(4, 4, 3, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(4, 6, 3, padding=2, dilation=2)
        )
        self.right = nn.Conv2d(4, 6, 1, stride=2)
        self.last = nn.Sequential(
            nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3)
        )

    def forward(self, x):
        y = self.stem((x - 0.4) / 0.3)
        return self.last(self.left(y) - self.right(y))


@pytest.fixture(params=range(3))
def problem(request, checked):
    torch.manual_seed(request.param)
    model = Branches()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.3, 2)
    network = checked(model, (2, 8, 8))
    center = torch.rand(2, 8, 8)
    return model, network, center - 0.02, center + 0.02


def test_bounds_hold_and_are_those_of_the_verifier(problem, evaluate, tmp_path):
    _, network, lower, upper = problem
    found = Bounds(network, *(inner(t.double().numpy()).copy() for t in (lower, upper)))
    rng = np.random.default_rng(0)
    low, high = lower.numpy(), upper.numpy()
    for share in [*rng.random((20, *low.shape)), *rng.integers(0, 2, (20, *low.shape))]:
        for i, value in enumerate(evaluate(network, low + share * (high - low))):
            assert (value >= found.lower[i] - 1e-6).all()
            assert (value <= found.upper[i] + 1e-6).all()
    theirs = Network.from_module(lingraft.load_onnx(tmp_path / "net.onnx"), low.shape)
    bounds = bound_sites(theirs, Region(lower, upper), Budget())
    for (position, pair), node in zip(bounds.bounds.items(), network.sites.values(), strict=True):
        (low, high), pair = (end.reshape(-1) for end in found.sites[node]), [end.flatten().numpy() for end in pair]
        taps = (low < -1e-9) & (high > 1e-9)  # the checker's are rounded outwards
        np.testing.assert_array_equal(taps, (pair[0] < -1e-9) & (pair[1] > 1e-9))
        # of a neuron whose sign is clear the verifier may be content with less
        np.testing.assert_allclose(low[taps], pair[0][taps], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(high[taps], pair[1][taps], rtol=1e-6, atol=1e-9)
        assert theirs.nodes[position].size == network.nodes[node].size
    spec, offset = np.eye(3) - np.roll(np.eye(3), 1, axis=1), np.arange(3.0)
    mine = found.margins(spec, offset)
    crown = margin_crown(theirs, bounds, torch.from_numpy(spec), torch.from_numpy(offset)).numpy()
    np.testing.assert_allclose(mine, crown, rtol=1e-6, atol=1e-9)
    of = collapse(found, {}, spec, offset)
    usual = np.repeat((of.upper > -of.lower).astype(float)[:, None], 3, axis=1)
    dual = below(of, Columns(of.q, of.p, of.c, of.slack), of.lower[:, None], of.upper[:, None], usual, None).bound
    assert (dual <= mine + 1e-9).all()  # intervals may be better than the collapsed rows
    assert of.count


def test_the_collapsed_network_is_the_network(problem, evaluate):
    """z = P d + Q h + r for real inputs, up to what is accounted for."""
    _, network, lower, upper = problem
    found = Bounds(network, *(inner(t.double().numpy()).copy() for t in (lower, upper)))
    of = collapse(found, {}, np.eye(3), np.zeros(3))
    low, high = lower.numpy().astype(np.float64), upper.numpy().astype(np.float64)
    for share in np.random.default_rng(1).random((10, *low.shape)):
        x = low + share * (high - low)
        values = evaluate(network, x)
        z = np.zeros(of.count)
        for node, numbers in of.numbers.items():
            places = np.flatnonzero(numbers)
            z[numbers.reshape(-1)[places] - 1] = values[network.nodes[node].inputs[0]].reshape(-1)[places]
        d, h = inner(x).reshape(-1) - found.center.reshape(-1), np.maximum(z, 0)
        for block in of.blocks:
            rows = block.P @ d + block.Q @ h[: block.first] + of.r[block.first : block.last]
            np.testing.assert_allclose(rows, z[block.first : block.last], atol=1e-9)
        np.testing.assert_allclose(of.p.T @ d + of.q.T @ h + of.c, values[-1], atol=1e-9)


def test_one_of_a_group_must_hold(fully_connected):
    """y = (x, −x): on [−1, 1] neither is > −0.5 everywhere, but one of them is, and the larger is > 0.1 nowhere near 0."""
    network = fully_connected([(np.array([[1.0], [-1.0]]), np.array([2.0, 2.0])), (np.eye(2), np.array([-2.0, -2.0]))])
    spec = np.array([[1.0, 0.0], [0.0, 1.0]])
    box = {"lower": np.array([-1.0]), "upper": np.array([1.0])}
    claim = prove(network, Certificate(network.sha256, constraints=(spec, np.full(2, 0.01)), group=2, **box))
    assert claim is not None
    check(claim, network)
    for group, offset in ((1, 0.01), (2, -0.01), (3, 0.01)):
        claim.group, claim.constraints = group, (spec, np.full(2, offset))
        with pytest.raises(Rejected):
            check(claim, network)


def test_public_networks_are_read(problems_folder, evaluate):
    import onnxruntime

    for path in sorted(problems_folder.glob("*/model.onnx")):
        network = load_network(path)
        session = onnxruntime.InferenceSession(str(path))
        x = np.random.default_rng(0).random((1, *network.shape)).astype(np.float32)
        expected = session.run(None, {session.get_inputs()[0].name: x})[0].reshape(-1)
        np.testing.assert_allclose(evaluate(network, x[0])[-1], expected, rtol=1e-4, atol=1e-4)
