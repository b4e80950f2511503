"""Trees of boxes: what they prove is true, every wrong one is noticed, and the verifier's own are accepted."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from checked_layers import layered
from exact_rational import Exact, Layers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import lingraft
from lingraft.checker import box_bounds, boxes
from lingraft.checker.check import check, check_file
from lingraft.checker.format import CLIPPED, DONE, BoxTree, Certificate, Rejected, decode, encode
from lingraft.checker.onnx_reader import load_network
from lingraft.formats.certificate_writer import CertificateWriter, claim_of_image
from lingraft.solver.request import Request
from lingraft.solver.verifier import Verifier, _Attempt, _scaled

SEEDS = st.integers(0, 10**6)


def tree_of(nodes: list[int], points: list[float], group: int = 1, shares: Any = None) -> BoxTree:
    bounded = sum(node < 0 for node in nodes)
    given_shares = np.zeros((bounded, group if group > 1 else 0)) if shares is None else np.array(shares, float)
    return BoxTree(np.zeros(1, np.int32), np.array(nodes, np.int32), np.array(points, float), given_shares)


def grid(low: float, high: float, depth: int, clip: bool) -> tuple[list[int], list[float]]:
    """Of one input: cut in half `depth` times, clipped before every cut or never."""
    if not depth:
        return [DONE], []
    middle = (low + high) / 2
    (one, left), (two, right) = (grid(a, b, depth - 1, clip) for a, b in ((low, middle), (middle, high)))
    return [*([CLIPPED] if clip else []), 0, *one, *two], [middle, *left, *right]


def random_tree(rng: np.random.Generator, depth: int) -> tuple[list[int], list[float]]:
    """Any cuts and clips whatever, at points in the box and beyond."""
    kind = rng.random()
    if not depth or kind < 0.2:
        return [DONE], []
    if kind < 0.5:
        rest, points = random_tree(rng, depth - 1)
        return [CLIPPED, *rest], points
    (one, left), (two, right) = (random_tree(rng, depth - 1) for _ in range(2))
    return [0, *one, *two], [float(rng.choice([rng.uniform(-1.5, 1.5), -1e300, 0.0])), *left, *right]


def random_layers(rng: np.random.Generator) -> Layers:
    sizes = (1, 6, 5, 2)
    return [
        (rng.normal(0, 1.2, (m, n)).astype(np.float32), rng.normal(0, 0.6, m).astype(np.float32))
        for n, m in itertools.pairwise(sizes)
    ]


def claimed(network: Any, offset: float, tree: BoxTree) -> Certificate:
    """The first output plus the offset is positive on [−1, 1]."""
    constraints = np.array([[1.0, 0.0]]), np.array([offset])
    return Certificate(
        network.sha256, constraints=constraints, lower=np.array([-1.0]), upper=np.array([1.0]), boxes=tree
    )


def accepted(certificate: Certificate, network: Any) -> bool:
    try:
        check(certificate, network)
    except Rejected as error:
        if "mistake in lingraft" in str(error):
            raise
        return False
    return True


def false_claim_is_accepted(seeds: range) -> bool:
    """Of claims that are false by a hair or more at some point, with trees that would prove a little less."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        layers = random_layers(rng)
        network, lowest = layered(layers), Exact(layers).minima(-1.0, 1.0)[0]
        for less in (0.0, 1e-3, 0.05):
            offset = float(-lowest) - less
            while Fraction(offset) + lowest > 0:
                offset = float(np.nextafter(offset, -np.inf))
            trees = [grid(-1.0, 1.0, depth, clip) for depth, clip in ((0, False), (4, False), (4, True))]
            for nodes, points in [*trees, random_tree(rng, 5)]:
                if accepted(claimed(network, offset, tree_of(nodes, points)), network):
                    return True
    return False


@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_nothing_false_is_accepted(seed):
    """Exact minima, in rational numbers, that are not above 0."""
    assert not false_claim_is_accepted(range(seed, seed + 1))


@pytest.mark.parametrize("seed", range(6))
def test_what_is_true_is_proven_by_small_boxes(seed):
    layers = random_layers(np.random.default_rng(seed))
    network, lowest = layered(layers), Exact(layers).minima(-1.0, 1.0)[0]
    for clip in (False, True):
        assert accepted(claimed(network, float(-lowest) + 1e-3, tree_of(*grid(-1.0, 1.0, 7, clip))), network)


def _changed(name: str, change: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """A function of `boxes` that gives something else."""
    right = getattr(boxes, name)
    return lambda patch: patch.setattr(boxes, name, lambda *a: change(right(*a)))


def _of_class(kind: type, name: str, make: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(kind, name, make(getattr(kind, name)))


MUTATIONS = {
    "points are cut off that a margin may be negative at": _changed("_reach", lambda reach: 0.9 * reach),
    "the bound of a function is its largest value": lambda patch: patch.setattr(
        boxes, "least", lambda value, p, radius: value + (np.abs(p) * radius).sum(-1)
    ),
    "bounds of neurons are too tight": lambda patch: patch.setattr(
        box_bounds, "least", lambda value, p, radius: value - 0.5 * (np.abs(p) * radius).sum(-1)
    ),
    "lines above are lines below": _of_class(
        box_bounds.BoxBounds,
        "_relaxed",
        lambda right: lambda self, i, rows, box: right(self, i, replace(rows, a=np.abs(rows.a)), box),
    ),
    "the upper half is lost": _of_class(
        boxes._Box, "cut", lambda right: lambda self, at, point: (right(self, at, point)[0],) * 2
    ),
    "halves do not meet": _of_class(
        boxes._Box,
        "cut",
        lambda right: lambda self, at, point: (right(self, at, point - 0.01)[0], right(self, at, point + 0.01)[1]),
    ),
    "boxes are bounded at their centers": lambda patch: patch.setattr(
        box_bounds, "middle", lambda low, high: ((low + high) / 2, 0 * low)
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_wrong_rules_are_noticed(monkeypatch, name):
    """Each makes the checker believe something false."""
    MUTATIONS[name](monkeypatch)
    assert false_claim_is_accepted(range(12))


def _proof() -> tuple[Any, Certificate]:
    layers = random_layers(np.random.default_rng(1))
    network, lowest = layered(layers), Exact(layers).minima(-1.0, 1.0)[0]
    certificate = claimed(network, float(-lowest) + 1e-3, tree_of(*grid(-1.0, 1.0, 5, True)))
    check(certificate, network)
    return network, certificate


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: replace(t, nodes=t.nodes[:-1], shares=t.shares[:-1]), "a box is missing"),
        (lambda t: replace(t, nodes=t.nodes[:1], points=t.points[:0], shares=t.shares[:1]), "a box is missing"),
        (lambda t: replace(t, nodes=t.nodes[:0], points=t.points[:0], shares=t.shares[:0]), "not one tree"),
        (lambda t: replace(t, nodes=np.tile(t.nodes, 2), points=np.tile(t.points, 2), shares=np.tile(t.shares, (2, 1))), "not one tree"),
        (lambda t: replace(t, nodes=np.where(t.nodes == 0, 1, t.nodes)), "an input that does not exist"),
        (lambda t: replace(t, nodes=np.where(t.nodes == DONE, -3, t.nodes)), "does not exist"),
        (lambda t: replace(t, points=t.points[:-1]), "do not fit"),
        (lambda t: replace(t, shares=t.shares[:-1]), "do not fit"),
        (lambda t: replace(t, shares=np.ones((len(t.shares), 2))), "do not fit"),
        (lambda t: replace(t, margins=np.zeros(2, np.int32)), "two for one"),
        (lambda t: replace(t, margins=np.array([-1], np.int32)), "do not exist"),
        (lambda t: replace(t, margins=np.array([1], np.int32)), "do not exist"),
        (lambda t: replace(t, margins=np.zeros(0, np.int32)), "for no margin"),
        (lambda t: replace(t, points=0 * t.points + 1e9), "is not proven"),
    ],
)  # fmt: skip
def test_trees_that_are_none_or_prove_too_little_are_rejected(monkeypatch, change, reason):
    monkeypatch.setattr(boxes._Box.__init__, "__defaults__", (0,))  # so that nothing mends a wrong point
    network, certificate = _proof()
    with pytest.raises(Rejected, match=reason):
        check(replace(certificate, boxes=change(certificate.boxes)), network)


def test_a_box_is_cut_by_the_checker_where_it_is_nearly_proven(monkeypatch):
    layers = random_layers(np.random.default_rng(1))
    network, lowest = layered(layers), Exact(layers).minima(-1.0, 1.0)[0]
    claim = claimed(network, float(-lowest) + 1e-3, tree_of([DONE], []))
    assert accepted(claim, network)
    monkeypatch.setattr(boxes._Box.__init__, "__defaults__", (0,))
    assert not accepted(claim, network)


def test_the_file_is_what_was_written_and_a_cut_one_is_rejected():
    network, certificate = _proof()
    content = encode(certificate)
    again = decode(content)
    for name, array in vars(certificate.boxes).items():
        np.testing.assert_array_equal(getattr(again.boxes, name), array)
    assert again.leaves == certificate.leaves == 2**5
    check(again, network)
    for end in (len(content) - 1, len(content) - 40):
        with pytest.raises(Rejected):
            decode(content[:end])
    for name in (b"boxes.points", b"boxes.margins"):
        with pytest.raises(Rejected, match="does not belong here or is missing"):
            decode(content.replace(name, name[:-1] + b"x"))


def test_one_of_several_constraints_must_hold():
    """y = (x, −x) plus 0.01: which is larger depends on x; half of each, together, is 0.01 everywhere."""
    network = layered([(np.array([[1.0], [-1.0]]), np.array([2.0, 2.0])), (np.eye(2), np.array([-2.0, -2.0]))])
    box = {"lower": np.array([-1.0]), "upper": np.array([1.0])}

    def claim(offset: float, shares: list[list[float]] | None = None, nodes: Any = ([DONE], [])) -> Certificate:
        tree = tree_of(*nodes, group=2, shares=shares)
        return Certificate(network.sha256, constraints=(np.eye(2), np.full(2, offset)), group=2, boxes=tree, **box)

    assert accepted(claim(0.01, [[0.5, 0.5]]), network)
    assert accepted(claim(0.01, [[3.0, 3.0]]), network)
    assert accepted(claim(0.01, None, ([0, DONE, DONE], [0.0])), network)
    for offset, shares in ((0.01, [[-0.5, 1.5]]), (0.01, [[0.5, -0.5]]), (-0.01, [[0.5, 0.5]]), (0.0, [[0.5, 0.5]])):
        assert not accepted(claim(offset, shares), network)
    assert not accepted(claim(-0.01, None, ([0, DONE, DONE], [0.0])), network)


def test_margins_of_a_label_are_not_taken_in_groups():
    """y = (0, 1, −1, −1): output 0 exceeds two others, not all."""
    network = layered([(np.zeros((4, 1)), np.array([0.0, 1.0, -1.0, -1.0]))])
    box = {"lower": np.array([0.0]), "upper": np.array([1.0])}
    claim = Certificate(network.sha256, label=0, group=3, boxes=tree_of([DONE], [], 3), **box)
    assert not accepted(claim, network)


def test_a_small_file_cannot_ask_for_much():
    """Boxes clipped a million times, in a few kilobytes."""
    network, certificate = _proof()
    content = encode(replace(certificate, boxes=tree_of([*[CLIPPED] * 10**6, DONE], [])))
    assert len(content) < 20_000
    with pytest.raises(Rejected, match="too much work"):
        check(decode(content), network)


# --- the verifier's own -----------------------------------------------------------------------------------------------


@pytest.fixture
def boxes_alone(monkeypatch):
    """The verifier has no search over neurons."""
    monkeypatch.setattr(_Attempt, "_branch", lambda *_: None)


def _asked(seed: int, above: float) -> tuple[nn.Module, Request]:
    """A network of three inputs, two margins of which are as low as `above` somewhere."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 8), nn.LeakyReLU(0.1), nn.Linear(8, 3)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 2
        spec = torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, 1.0]], dtype=torch.float64)
        lowest = (model(2 * torch.rand(20000, 3) - 1).double() @ spec.T).amin(0)
    region = {"lower": torch.full((1, 3), -1.0), "upper": torch.full((1, 3), 1.0)}
    return model, Request(model, torch.zeros(1, 3), None, constraints=(spec, above - lowest), **region)


@pytest.mark.parametrize("small", [1e-4, 1e-12])
def test_margins_that_the_verifier_multiplied_have_certificates(boxes_alone, checked, small):
    model, request = _asked(0, 0.15)
    with torch.no_grad():
        model[4].weight *= small
        model[4].bias *= small
    spec, offset = request.constraints
    region = {"lower": torch.full((1, 3), -1.0), "upper": torch.full((1, 3), 1.0)}
    request = Request(model, torch.zeros(1, 3), None, constraints=(spec[0], small * offset[0]), **region)
    assert bool((_scaled(request.network, request.problem(0))[0] > 1).all())
    network = checked(model, (3,))
    result = Verifier(request.network).verify(request.problem(0), 30, prove=True)
    assert (result.verdict, result.stage) == ("verified", "boxes")
    certificate = CertificateWriter(request.network, network).certificate(claim_of_image(request, 0, {}), result)
    check(decode(encode(certificate)), network)
    rows, shifts = certificate.constraints
    with pytest.raises(Rejected):
        check(replace(certificate, constraints=(rows, shifts - 0.4 * small)), network)


@pytest.mark.parametrize("seed", range(3))
def test_proofs_by_boxes_have_certificates(boxes_alone, checked, seed):
    model, request = _asked(seed, 0.15)
    network = checked(model, (3,))
    result = Verifier(request.network).verify(request.problem(0), 30, prove=True)
    assert (result.verdict, result.stage) == ("verified", "boxes")
    certificate = CertificateWriter(request.network, network).certificate(claim_of_image(request, 0, {}), result)
    assert certificate.boxes is not None
    content = encode(certificate)
    check(decode(content), network)
    rows, shifts = certificate.constraints
    with pytest.raises(Rejected):
        check(replace(certificate, constraints=(rows, shifts - 0.4)), network)


def test_a_label_and_a_ball_with_inputs_that_are_maps(boxes_alone, checked):
    """Inputs of the file are channels first."""
    torch.manual_seed(4)
    model = nn.Sequential(
        nn.Conv2d(2, 6, (1, 2)), nn.ReLU(), nn.Flatten(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 2
    image = torch.rand(1, 2, 1, 2)
    network = checked(model, (2, 1, 2))
    request = Request(model, image, model(image).argmax(1), eps=0.4, clip=(0.0, 1.0))
    result = Verifier(request.network).verify(request.problem(0), 20, prove=True)
    assert (result.verdict, result.stage) == ("verified", "boxes")
    certificate = CertificateWriter(request.network, network).certificate(claim_of_image(request, 0, {}), result)
    check(decode(encode(certificate)), network)


def test_a_property_of_several_sets_of_constraints(boxes_alone, tmp_path):
    """Unsafe where both outputs are at most 0: one of them must be positive, which each is only somewhere."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 2
        values = model(2 * torch.rand(20000, 2) - 1)
        model[4].bias -= values.amax(1).min() - 0.1
    lingraft.export_onnx(model, tmp_path / "net.onnx", input_shape=(2,))
    text = ["(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)"]
    text += [f"(assert (>= X_{i} -1)) (assert (<= X_{i} 1)) (assert (<= Y_{i} 0))" for i in range(2)]
    (tmp_path / "p.vnnlib").write_text("\n".join(text))
    found = lingraft.verify_property(
        tmp_path / "net.onnx", tmp_path / "p.vnnlib", certificates=tmp_path, check=True, timeout=30, progress=False
    )
    assert (found.answer.word, found.answer.stage) == ("unsat", "boxes")
    assert (found.certificates.checked, found.certificates.rejected) == (1, {})
    report = check_file(tmp_path / "p.cert", load_network(tmp_path / "net.onnx"))
    assert report.accepted
    assert report.certificate.group == 2
    assert report.certificate.boxes.shares.any()
