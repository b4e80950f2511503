"""A small file cannot ask for much: what it would cost is known, and refused, before it is done."""

import itertools
import time

import numpy as np
import pytest

from lingraft.checker import check as check_module
from lingraft.checker.bounds import Bounds
from lingraft.checker.budget import Budget
from lingraft.checker.check import check, check_file, region
from lingraft.checker.format import EMPTY, LEAF, PARTS, TYPES, Certificate, Rejected, encode, tree_of
from lingraft.checker.onnx_reader import load_network

OUTPUTS = 3


@pytest.fixture
def network(fully_connected):
    """8 inputs, and 28 neurons that are all open in a large ball."""
    rng = np.random.default_rng(0)
    widths = [8, 16, 12, OUTPUTS]
    return fully_connected([(rng.standard_normal((m, n)), np.zeros(m)) for n, m in itertools.pairwise(widths)])


def claim_of(network, **more) -> Certificate:
    """That the first output is above −1000 in a ball, which is true, so that all of a proof is looked at."""
    constraint = np.eye(1, OUTPUTS), np.full(1, 1000.0)
    given = {"constraints": constraint, "image": np.zeros(8, np.float32), "eps": 1.0} | more
    return Certificate(
        network.sha256, taps={0: np.arange(16, dtype=np.int32), 1: np.arange(12, dtype=np.int32)}, **given
    )


def tree(**parts):
    """A tree of one leaf with parts of its own."""
    taps = 28
    usual = {"nodes": [LEAF], "in_force": [0], "multipliers.alpha": np.zeros((1, taps)), "multipliers.sizes": [0]}
    found = usual | {name.replace("__", "."): value for name, value in parts.items()}
    arrays = {
        name: np.array(found.get(name, []), TYPES[kind]).reshape((-1, taps) if rank == 2 else -1)
        for name, kind, rank in PARTS
    }
    return tree_of(0, arrays)


def many_rounds(network) -> Certificate:
    """Each tightens one bound."""
    count, one = 400_000, np.ones(400_000)
    return claim_of(network, trees=[tree(rounds__sizes=one, rounds__taps=0 * one, rounds__sides=one, rounds__gamma=0 * one, rounds__alpha=np.zeros((count, 28)))])  # fmt: skip


def chain(leaves: int, kind: int) -> list[int]:
    """A tree as deep as it has leaves."""
    return [part for _ in range(leaves - 1) for part in (0, kind)] + [kind]


def deep_tree(network) -> Certificate:
    """Leaves that are said to be empty cost four bytes and a number of rounds."""
    nodes = chain(500_000, EMPTY)
    return claim_of(network, trees=[tree(nodes=nodes, in_force=np.zeros(500_000), multipliers__alpha=[], multipliers__sizes=[])])  # fmt: skip


def many_leaves(network) -> Certificate:
    count = 300_000
    return claim_of(network, trees=[tree(nodes=chain(count, LEAF), in_force=np.zeros(count), multipliers__alpha=np.zeros((count, 28)), multipliers__sizes=np.zeros(count))])  # fmt: skip


def clipped(sets: int, count: int, groups: np.ndarray, grid: list[float]) -> dict:
    """Clips of so many nodes, each with the next set of forms."""
    return {
        "nodes": chain(count + 1, LEAF), "in_force": np.zeros(count + 1),
        "multipliers__alpha": np.zeros((count + 1, 28)), "multipliers__sizes": np.zeros(count + 1),
        "clips__forms_in_force": np.zeros(sets), "clips__forms_alpha": np.zeros((sets, 28)),
        "clips__groups": np.tile(groups, (sets, 1)), "clips__grid": grid,
        "clips__nodes": 2 * np.arange(count), "clips__in_force": np.zeros(count), "clips__forms": np.arange(count) % sets,
        "clips__multipliers__alpha": np.zeros((count, 28)), "clips__multipliers__sizes": np.zeros(count),
    }  # fmt: skip


def many_forms(network) -> Certificate:
    """A set of forms for every clip, and a group for every tap."""
    return claim_of(network, trees=[tree(**clipped(4000, 4000, np.arange(28), [1.0]))])


def long_grid(network) -> Certificate:
    return claim_of(network, trees=[tree(**clipped(1, 20, np.zeros(28), [1.0] * 1_000_000))])


def many_constraints(network) -> Certificate:
    """0·y + 1 > 0, which is true."""
    rows, shifts = np.zeros((300_000, OUTPUTS)), np.ones(300_000)
    return claim_of(network, constraints=(rows, shifts))


def one_group(network) -> Certificate:
    return claim_of(network, constraints=(np.zeros((300_000, OUTPUTS)), np.ones(300_000)), group=300_000)


def many_groups(network) -> Certificate:
    return claim_of(network, constraints=(np.zeros((300_000, OUTPUTS)), np.ones(300_000)), group=2)


def larger_group(network) -> Certificate:
    return claim_of(network, constraints=(np.zeros((2000, OUTPUTS)), np.ones(2000)), group=2000)


@pytest.mark.parametrize(
    "make",
    [many_rounds, deep_tree, many_leaves, many_forms, long_grid, one_group, many_groups, larger_group],
)
def test_small_files_that_ask_for_days_are_refused_at_once(network, tmp_path, make):
    content = encode(make(network))
    assert len(content) < 100_000
    (tmp_path / "x.cert").write_bytes(content)
    begun = time.process_time()
    report = check_file(tmp_path / "x.cert", network)
    assert time.process_time() - begun < 3
    assert not report.accepted
    assert "too much" in report.reason or "too large" in report.reason


def test_many_true_constraints_are_accepted_quickly(network, tmp_path):
    (tmp_path / "x.cert").write_bytes(encode(many_constraints(network)))
    begun = time.process_time()
    assert check_file(tmp_path / "x.cert", network).accepted
    assert time.process_time() - begun < 3


def test_a_network_can_be_too_large_as_well(written):
    """512 × 512 pixels seen through a kernel of 15 × 15, in a file of 1 kB: windows of 470 MB, of which three are made."""
    weight = np.ones((1, 1, 15, 15), np.float32)
    nodes = [("Conv", "x w", "z", {"pads": [7] * 4}), ("Relu", "z", "h"), ("AveragePool", "h", "p", {"kernel_shape": [256, 512], "strides": [256, 512]}), ("Flatten", "p", "y")]  # fmt: skip
    network = written(nodes, [1, 1, 512, 512], {"w": weight})
    claim = Certificate(network.sha256, label=0, image=np.zeros((1, 512, 512), np.float32), eps=0.1)
    claim.packed = 5000
    begun = time.process_time()
    with pytest.raises(Rejected, match="too much memory"):
        check(claim, network)
    assert time.process_time() - begun < 3


@pytest.mark.slow
def test_long_chains_of_small_layers(written):
    """Every neuron passes all layers before it: refused before the first hour."""
    count = 1200
    nodes = [("Add" if i % 2 else "Relu", f"v{i - 1} one" if i % 2 else f"v{i - 1}", f"v{i}") for i in range(1, count)]
    nodes = [("Add", "x one", "v0"), *nodes, ("Identity", f"v{count - 1}", "y")]
    network = written(nodes, [1, 2], {"one": np.full(2, -1e-3, np.float32)})
    claim = Certificate(network.sha256, label=0, image=np.zeros(2, np.float32), eps=1.0)
    claim.packed = 1000
    begun = time.process_time()
    with pytest.raises(Rejected, match="too much work"):
        check(claim, network)
    assert time.process_time() - begun < 5


@pytest.mark.slow
def test_windows_that_become_whole_maps_are_paid_for(written):
    """A pooling of 9 pixels into 1,089 values, in a file of 170 bytes: single values that are moved cost whole maps."""
    nodes = [("MaxPool", "x", "p", {"kernel_shape": [31, 31], "pads": [30] * 4}), ("Relu", "p", "h"), ("Flatten", "h", "y")]  # fmt: skip
    network = written(nodes, [1, 1, 3, 3], {})
    claim = Certificate(network.sha256, label=0, image=np.zeros((1, 3, 3), np.float32), eps=0.1)
    claim.packed = 600
    begun = time.process_time()
    with pytest.raises(Rejected, match="too much work"):
        check(claim, network)
    assert time.process_time() - begun < 5


def test_estimates_are_those_of_the_public_problems(problems_folder):
    """What the bounds of real networks are said to cost is within a tenth of what may be asked for, and not nothing."""
    for name in ("cifar_cnn_a_adv", "resnet2b", "oval_base"):
        network = load_network(problems_folder / name / "model.onnx")
        claim = Certificate(network.sha256, label=0, image=np.full(network.shape, 0.5), eps=2 / 255)
        budget = Budget.of(network, 20_000)
        begun = time.process_time()
        Bounds(network, *region(claim, network), budget)
        seconds = time.process_time() - begun
        assert budget.spent < budget.limit / 10
        assert budget.spent / 1e9 > seconds / 10


def test_a_mistake_in_the_checker_is_a_rejection(network, monkeypatch, tmp_path):
    (tmp_path / "x.cert").write_bytes(encode(claim_of(network)))
    assert check_file(tmp_path / "x.cert", network).accepted
    errors = [(ValueError("a\x00b"), "mistake in lingraft"), (MemoryError(), "not enough memory"), (Rejected(""), "")]
    for error, reason in errors:
        monkeypatch.setattr(check_module, "question", lambda *_, error=error: (_ for _ in ()).throw(error))
        report = check_file(tmp_path / "x.cert", network)
        assert not report.accepted
        assert reason in report.reason
        assert report.reason
