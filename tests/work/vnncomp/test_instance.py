"""Deciding an instance: sound, complete on small networks, and with counterexamples that are ones."""

import csv
import gzip
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from handmade_onnx import write_onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from lingraft import LingraftError
from lingraft.formats.answer import Answer, Counterexample
from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.onnx_network import OnnxNetwork
from lingraft.formats.vnnlib import Box, Conjunction, Property
from lingraft.solver.budget import Budget
from lingraft.solver.request import Limits
from lingraft.solver.verifier import Result
from lingraft.work.vnncomp.instance import Instance, margins

LIMITS = Limits(30.0)


@pytest.fixture
def network(tmp_path: Path) -> Callable[..., OnnxNetwork]:
    """network(*layers, shape=…): an ONNX file of these layers, read."""

    def make(*layers: nn.Module, shape: tuple[int, ...] = (1,)) -> OnnxNetwork:
        export_onnx(nn.Sequential(*layers).eval(), tmp_path / "net.onnx", input_shape=shape)
        return OnnxNetwork(tmp_path / "net.onnx")

    return make


def linear(weight: list[list[float]], bias: list[float]) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias))
    return layer


def unsafe(*rows: list[float]) -> Conjunction:
    """Rows of coefficients, the constant last: each means Σ ≤ 0."""
    array = np.array(rows, float).reshape(len(rows), -1)
    return Conjunction(array[:, :-1], array[:, -1])


def box(lower: list[float], upper: list[float], *conjunctions: Conjunction) -> Box:
    return Box(np.array(lower), np.array(upper), list(conjunctions))


def ask(network: OnnxNetwork, *boxes: Box) -> Answer:
    instance = Instance(network, Property(list(boxes)))
    answer = instance.answer(LIMITS)
    if answer.word == "sat":
        check_counterexample(network, boxes, answer.counterexample)
    else:
        assert answer.counterexample is None
    return answer


def check_counterexample(network: OnnxNetwork, boxes: Sequence[Box], found: Counterexample | None) -> None:
    """In a box exactly, and unsafe for an onnxruntime of our own."""
    assert found is not None
    session = onnxruntime.InferenceSession(str(network.path), providers=["CPUExecutionProvider"])
    x = found.x.astype(np.float32).reshape(1, *network.input_shape)
    y = session.run(None, {session.get_inputs()[0].name: x})[0].ravel()
    np.testing.assert_allclose(found.y, y, rtol=1e-5, atol=1e-5)
    assert any(
        (found.x >= b.lower).all() and (found.x <= b.upper).all() and any(c.holds(y.astype(float)) for c in b.unsafe)
        for b in boxes
    )


def test_several_inequalities_are_unsafe_only_together(network) -> None:
    """y = x in [0, 1]: each of y ≥ 0.6 and y ≤ 0.4 happens, both at once do not."""
    identity = network(linear([[1.0]], [0.0]))
    high, low = [-1, 0.6], [1, -0.4]
    assert ask(identity, box([0], [1], unsafe(high, low))).word == "unsat"
    assert ask(identity, box([0], [1], unsafe(high), unsafe(low))).word == "sat"
    assert ask(identity, box([0], [1], unsafe(high, low), unsafe([-1, 0.9]))).word == "sat"
    assert ask(identity, box([0], [1], unsafe([-1, 0.3], [1, -0.4]))).word == "sat"


def test_a_set_deep_in_a_corner(network) -> None:
    """Three inequalities that hold together in a small part of the box, and in none of it once it is moved."""
    torch.manual_seed(0)
    net = network(linear([[1, 0], [0, 1]], [0, 0]), nn.ReLU(), linear([[1, 1], [1, -1]], [0, 0]), shape=(2,))
    corner = [[-1, 0, 1.9], [0, 1, -0.05], [0, -1, -0.05]]
    assert ask(net, box([-1, -1], [1, 1], unsafe(*corner))).word == "sat"
    assert ask(net, box([-1, -1], [1, 1], unsafe([-1, 0, 2.01], *corner[1:]))).word == "unsat"


def test_reaching_the_bound_is_unsafe(network) -> None:
    """≤ and ≥ include equality: relu(x) ≤ 0 happens, relu(x) ≤ −0.001 does not."""
    net = network(linear([[1.0]], [0.0]), nn.ReLU())
    assert ask(net, box([-1], [1], unsafe([1, 0]))).word == "sat"
    assert ask(net, box([-1], [1], unsafe([1, 0.001]))).word == "unsat"
    touching = ask(net, box([0.5], [1], unsafe([1, -0.5])))
    assert touching.word in ("sat", "unknown"), "safe only if strictly above"


def test_boxes_are_alternatives(network) -> None:
    net = network(linear([[1.0]], [0.0]))
    bad = unsafe([-1, 2.5])
    assert ask(net, box([0], [1], bad), box([1], [2], bad)).word == "unsat"
    assert ask(net, box([0], [1], bad), box([2], [3], bad), box([1], [2], bad)).word == "sat"


def test_no_output_constraint_is_always_unsafe(network) -> None:
    net = network(linear([[1.0]], [0.0]))
    everything = Conjunction(np.zeros((0, 1)), np.zeros(0))
    assert ask(net, box([0], [1], everything)).word == "sat"
    assert ask(net, box([0], [1], everything), box([2], [3], everything)).word == "sat"
    # no float32 number is between these two, and they themselves are not allowed
    narrow = Box(np.array([0.1]), np.array([0.1 + 1e-12]), [everything], np.ones((2, 1), bool))
    assert ask(net, narrow).word in ("unknown", "timeout")


def test_bounds_without_a_float32_between_them(network) -> None:
    """0.1 is no float32 number: the counterexample is 0.1 all the same, and run as onnxruntime rounds it."""
    net = network(linear([[1.0, 1.0]], [0.0]), nn.ReLU(), linear([[1.0]], [0.0]), shape=(2,))
    fixed = box([0.1, -1.0], [0.1, 1.0], unsafe([-1, 1.05]))
    found = ask(net, fixed)
    assert found.word == "sat"
    assert found.counterexample is not None
    assert found.counterexample.x[0] == 0.1
    assert ask(net, box([0.1, -1.0], [0.1, 1.0], unsafe([-1, 1.15]))).word == "unsat"


def test_coefficients_are_used_exactly(network) -> None:
    """In float32, 16777217·y would be 16777216·y."""
    net = network(linear([[1.0]], [0.0]))
    several = [unsafe([16777217, -16777216.5], [0, -1]), unsafe([0.1, 0.2])]
    verifier, spec, offset = margins(net, several, double=False)
    found = verifier.network.forward(torch.ones(1, 1).double())[0].numpy() @ spec.numpy() + offset.numpy()
    assert found.tolist() == [0.5, 0.1 + 0.2]


def test_inputs_and_outputs_of_any_shape(network) -> None:
    net = network(nn.Conv2d(2, 3, 1), nn.ReLU(), shape=(2, 2, 2))
    assert (net.inputs, net.outputs) == (8, 12)
    never = np.zeros((1, 13))
    never[0, 5], never[0, 12] = 1, 1  # y₅ ≤ −1, behind a ReLU
    assert ask(net, box([0] * 8, [1] * 8, unsafe(*never.tolist()))).word == "unsat"
    x = np.arange(8) / 8
    with torch.no_grad():
        y = net.module(torch.from_numpy(x).view(1, 2, 2, 2))[0].numpy()
    np.testing.assert_allclose(net.run(x), y, atol=1e-6)


@pytest.mark.slow
def test_time_is_shared_and_then_over(network) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(20, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 2)]
    net = network(*layers, shape=(20,))
    hard = box([-3] * 20, [3] * 20, unsafe([1, -1, 12]))
    easy = box([0] * 20, [0.001] * 20, unsafe([1, -1, 12]))
    instance = Instance(net, Property([hard, easy, hard]))
    advanced: list[int] = []
    answer = instance.answer(Limits(1.5), advance=lambda *_: advanced.append(1))
    assert (answer.word, answer.reason) == ("timeout", "time")
    assert len(advanced) == 1, "the easy one is decided though the first is not"
    assert answer.seconds < 4


def test_nothing_undecided_is_unsat_whenever_the_time_is_over(network, monkeypatch) -> None:
    """Time passes between any two looks at the clock, too."""
    one = box([0.0], [1.0], unsafe([1.0, 2.0]))
    instance = Instance(network(linear([[1.0]], [0.0])), Property([one]))
    monkeypatch.setattr(Instance, "_try", lambda *_: (Result("unknown", "branch", "time"), None, None))
    for looks in range(8):
        seconds = iter([1.0] * looks + [0.0] * 9)
        monkeypatch.setattr(Budget, "left", property(lambda _, seconds=seconds: next(seconds)))
        assert instance.answer(LIMITS).word == "timeout"


rows = st.lists(st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=3), min_size=1, max_size=3)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), sets=st.lists(rows, min_size=1, max_size=3), boxes=st.integers(1, 2))
def test_against_many_points(network, seed, sets, boxes) -> None:
    """unsat: no point of a fine grid is unsafe in float64. sat: checked. Nothing else on networks this small."""
    torch.manual_seed(seed)
    net = network(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2), shape=(2,))
    lows = torch.rand(boxes, 2).double().numpy() * 2 - 1.5
    asked = [box(low, low + 1, *(unsafe(*part) for part in sets)) for low in lows]
    answer = ask(net, *asked)
    grid = np.stack(np.meshgrid(np.linspace(0, 1, 60), np.linspace(0, 1, 60)), -1).reshape(-1, 2)
    lowest = np.inf
    for low in lows:
        with torch.no_grad():
            y = net.module(torch.from_numpy(grid + low)).numpy()
        for part in asked[0].unsafe:
            lowest = min(lowest, float((y @ part.coefficients.T + part.constants).max(1).min()))
    assert answer.word != "timeout"
    if answer.word == "unsat":
        assert lowest > 0
    elif answer.word == "unknown":
        assert abs(lowest) < 1e-2, "only where safe and unsafe touch"


def test_packed_network(network, tmp_path) -> None:
    net = network(linear([[1.0]], [0.0]))
    packed = tmp_path / "net.onnx.gz"
    packed.write_bytes(gzip.compress(net.path.read_bytes()))
    assert OnnxNetwork(packed).run(np.array([3.0])).tolist() == [3.0]
    packed.write_bytes(gzip.compress(net.path.read_bytes())[:-20])
    with pytest.raises(LingraftError, match="not a readable ONNX file"):
        OnnxNetwork(packed)


@pytest.mark.slow
def test_reading_loads_no_compiler(network) -> None:
    """torch._dynamo alone takes longer to load than a usual network to be decided."""
    net = network(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3), shape=(16,))
    code = f"""
import sys
from lingraft.formats.onnx_import import load_onnx
load_onnx({str(net.path)!r})
assert 'torch._dynamo' not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "name", ["cifar_cnn_a_adv", "mnist_cnn_a_adv", "oval_base", "resnet2b", "cnn_b_fat", "cnn_b_graft50"]
)
def test_public_verdicts(problems_folder, name) -> None:
    """The answers recorded for the problems that were decided most quickly."""
    with open(problems_folder / name / "peers.csv", newline="") as file:
        recorded = [row for row in csv.DictReader(file) if row["verdict"] in ("verified", "falsified")]
    recorded.sort(key=lambda row: float(row["cpu_seconds"]))
    net = OnnxNetwork(problems_folder / name / "model.onnx")
    for row in recorded[:2]:
        instance = Instance.read(net, problems_folder / name / "vnnlib" / f"{row['i']}.vnnlib.gz")
        answer = instance.answer(LIMITS)
        assert answer.word == {"verified": "unsat", "falsified": "sat"}[row["verdict"]], row
        if answer.word == "sat":
            check_counterexample(net, instance.property.boxes, answer.counterexample)


def test_what_is_added_to_another_name_of_a_value_stays_there(tmp_path: Path) -> None:
    """m = 100·x, y = relu(m − 100) + (m − 5): above 6 somewhere in [0, 2], where it would be 201 − 10 at most."""
    nodes = [
        ("MatMul", "x w", "m"), ("Sub", "m far", "c"), ("Relu", "c", "r"), ("Identity", "m", "a"),
        ("Add", "a shift", "b"), ("Add", "b r", "y"),
    ]  # fmt: skip
    constants = {
        name: np.array(value, np.float32) for name, value in (("w", [[100.0]]), ("far", [100.0]), ("shift", [-5.0]))
    }
    network = OnnxNetwork(write_onnx(tmp_path, nodes, [1, 1], constants))
    highest = float(network.run(np.array([2.0]))[0])
    assert highest == 295
    assert ask(network, box([0.0], [2.0], unsafe([-1.0, highest - 2]))).word == "sat"
    assert ask(network, box([0.0], [2.0], unsafe([-1.0, highest + 0.5]))).word == "unsat"


def test_no_unsat_where_onnxruntime_gives_something_else(network: Callable[..., OnnxNetwork], tmp_path: Path) -> None:
    """Whatever the reason: here the file is exchanged for one that differs beyond 150 only, far from where it is read."""
    read = network(linear([[1.0]], [0.0]), nn.ReLU(), linear([[1.0], [0.0]], [0.0, 0.0]))
    other = nn.Sequential(
        linear([[1.0], [1.0]], [0.0, -150.0]), nn.ReLU(), linear([[1.0, -1.0], [0.0, 0.0]], [0.0, 0.0])
    )
    export_onnx(other.eval(), tmp_path / "other.onnx", input_shape=(1,))
    read._session = OnnxNetwork(tmp_path / "other.onnx")._session
    low = unsafe([1.0, -1.0, -120.0])  # y0 − y1 ≤ 120
    assert ask(read, box([125.0], [149.0], low)).word == "unsat", "the same on this box"
    answer = ask(read, box([125.0], [200.0], low))
    assert answer.word == "unknown"
    assert "differs from onnxruntime" in str(answer.reason)


def test_outputs_of_a_softmax_are_compared_before_it(network) -> None:
    """Where all probabilities are 0 or 1 in float32, only the logits say more, to bounds and to attacks."""
    made = network(linear([[1000.0], [0.0], [-1000.0]], [300.0, 0.0, 0.0]), nn.Softmax(1))
    assert made.before_softmax is not None
    larger = unsafe([1.0, -1.0, 0.0, 0.0])  # y₀ ≤ y₁
    assert ask(made, box([-0.2], [1.0], larger)).word == "unsat"
    found = ask(made, box([-1.0], [1.0], larger))
    assert found.word == "sat"
    assert found.counterexample.x[0] <= -0.3
    # anything else is about the probabilities
    probable = unsafe([1.0, 0.0, 0.0, -0.9])  # y₀ ≤ 0.9
    verifier, _, _ = margins(made, [probable], False)
    assert verifier.network is not made.before_softmax
    assert ask(made, box([0.0], [1.0], probable)).word == "unsat"
    assert ask(made, box([-1.0], [1.0], probable)).word == "sat"
    assert margins(made, [larger], False, prove=True)[0].network is not made.before_softmax


def test_without_a_last_softmax_nothing_is_left_out(network) -> None:
    assert network(linear([[1.0], [0.0]], [0.0, 0.0])).before_softmax is None
