"""Instances of VNN-LIB 2.0: several networks, hidden values, constraints between inputs, equality as the only witness."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from handmade_onnx import write_onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from lingraft import LingraftError, verify_property
from lingraft.formats.answer import Answer
from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.onnx_network import OnnxNetwork
from lingraft.formats.vnnlib import property_of
from lingraft.formats.vnnlib_query import read_query
from lingraft.solver.request import Limits
from lingraft.work.vnncomp.networks import Networks

#: more than any of them needs, whatever else the machine does
LIMITS = Limits(300.0)
F = "(declare-network f (declare-input X real [2]) (declare-output Y real [2]))\n"
G = "(declare-network g (equal-to f) (declare-input Z real [2]) (declare-output W real [2]))\n"
X = "(assert (and (>= X[0] -1) (<= X[0] 1) (>= X[1] -1) (<= X[1] 1)))\n"
Z = X.replace("X[", "Z[")
SAME = "(assert (and (== X[0] Z[0]) (== X[1] Z[1])))\n"


def linear(weight: list[list[float]], bias: list[float]) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias))
    return layer


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., Answer]:
    """ask(text, f=layers, g=layers): the answer to a property of these networks; a `sat` is checked."""

    def go(text: str, **networks: list[nn.Module]) -> Answer:
        files = {}
        for name, layers in networks.items():
            files[name] = tmp_path / f"{name}.onnx"
            export_onnx(nn.Sequential(*layers).eval(), files[name], input_shape=(2,))
        vnnlib = tmp_path / "p.vnnlib"
        vnnlib.write_text("(vnnlib-version <2.0>)\n" + text)
        answer = Networks().instance(files, vnnlib).answer(LIMITS)
        if answer.word == "sat":
            check(answer, files, vnnlib)
        return answer

    return go


def check(answer: Answer, files: dict[str, Path], vnnlib: Path) -> None:
    """The values of a counterexample are float32, onnxruntime's own, and fulfil the property exactly."""
    query, point = read_query(vnnlib), answer.counterexample
    assert point is not None
    assert np.array_equal(point.x, point.x.astype(np.float32))
    first, outputs = 0, []
    for network in query.networks:
        path = files[network.name] if network.name in files else files[network.like]
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        x = point.x[first : first + 2].astype(np.float32)
        first += 2
        outputs.append(session.run(None, {session.get_inputs()[0].name: x[None]})[0].ravel())
    assert np.array_equal(point.y, np.concatenate(outputs))
    free = np.zeros(query.inputs)
    free[query.copies] = point.x
    assert np.array_equal(free[query.copies], point.x)
    found = property_of(query)
    values = np.concatenate([point.y, free]) if found.with_inputs else point.y
    assert any(box.contains(free) and any(c.holds(values.astype(float)) for c in box.unsafe) for box in found.boxes)


def random_layers(seed: int) -> list[nn.Module]:
    torch.manual_seed(seed)
    return [nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)]


@pytest.mark.slow
def test_two_networks_that_are_almost_the_same(ask):
    layers, other = random_layers(0), random_layers(0)
    with torch.no_grad():
        other[2].bias.add_(0.01)
    both = F + G.replace("(equal-to f) ", "") + X + SAME
    assert ask(both + "(assert (> W[0] (+ Y[0] 0.011)))", f=layers, g=other).word == "unsat"
    assert ask(both + "(assert (> W[0] (+ Y[0] 0.009)))", f=layers, g=other).word == "sat"
    assert ask(both + "(assert (or (> W[0] (+ Y[0] 0.02)) (< W[1] (- Y[1] 0.005))))", f=layers, g=other).word == "unsat"


@pytest.mark.slow
def test_the_same_network_at_two_inputs(ask):
    """y = relu(x0) − x1 grows with x0 and falls with x1."""
    layers = [linear([[1, 0], [0, 1], [0, -1]], [0, 0, 0]), nn.ReLU(), linear([[1, -1, 1], [0, 0, 0]], [0, 0])]
    grows = F + G + X + Z + "(assert (>= Z[0] X[0]))(assert (== Z[1] X[1]))"
    assert ask(grows + "(assert (< W[0] (- Y[0] 0.001)))", f=layers).word == "unsat"
    assert ask(grows + "(assert (> W[0] (+ Y[0] 0.5)))", f=layers).word == "sat"
    falls = F + G + X + Z + "(assert (> Z[1] X[1]))(assert (== Z[0] X[0]))"
    assert ask(falls + "(assert (> W[0] (+ Y[0] 0.001)))", f=layers).word == "unsat"
    assert ask(falls + "(assert (< W[0] Y[0]))", f=layers).word == "sat"


def test_constraints_between_inputs_and_outputs(ask):
    """y = x: an output above its own input does not exist, an output above the other input does."""
    layers = [linear([[1, 0], [0, 1]], [0, 0])]
    assert ask(F + X + "(assert (>= Y[0] (+ X[0] 0.01)))", f=layers).word == "unsat"
    assert ask(F + X + "(assert (>= Y[0] (+ X[1] 0.01)))", f=layers).word == "sat"
    triangle = F + X + "(assert (<= (+ X[0] X[1]) -1))"
    assert ask(triangle + "(assert (>= (+ Y[0] Y[1]) -0.9))", f=layers).word == "unsat"
    assert ask(triangle + "(assert (>= Y[0] 0))(assert (<= Y[1] -1))", f=layers).word == "sat", "only at a corner"


def test_constraints_between_inputs_in_version_1(tmp_path):
    export_onnx(nn.Sequential(linear([[1, 0], [0, 1]], [0, 0])).eval(), tmp_path / "f.onnx", input_shape=(2,))
    declared = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
    bounds = "".join(f"(assert (<= X_{i} 1))\n(assert (>= X_{i} -1))\n" for i in range(2))
    words = []
    for sign in ("<=", ">="):
        (tmp_path / "p.vnnlib").write_text(f"{declared}{bounds}(assert (<= X_0 X_1))(assert ({sign} (- Y_0 Y_1) 0.01))")
        words.append(Networks().instance({"": tmp_path / "f.onnx"}, tmp_path / "p.vnnlib").answer(LIMITS).word)
    assert words == ["sat", "unsat"]


def test_hidden_values(ask, tmp_path):
    layers = [linear([[1, 1], [1, -1]], [0, 0]), nn.ReLU(), linear([[1, 1], [1, 0]], [0, 0])]
    export_onnx(nn.Sequential(*layers).eval(), tmp_path / "f.onnx", input_shape=(2,))
    (name,) = [node.output[0] for node in onnx.load(tmp_path / "f.onnx").graph.node if node.op_type == "Relu"]
    text = F.replace("(declare-output", f'(declare-hidden H real [2] "{name}") (declare-output')
    vnnlib = tmp_path / "p.vnnlib"
    answers = []
    for bound in (1.5, 2.5):
        vnnlib.write_text(f"(vnnlib-version <2.0>){text}{X}(assert (and (>= H[0] {bound}) (<= Y[0] 5)))")
        answers.append(Networks().instance({"": tmp_path / "f.onnx"}, vnnlib).answer(LIMITS))
    assert [answer.word for answer in answers] == ["sat", "unsat"]
    assert [line.split()[0] for line in str(answers[0]).splitlines() if " " in line] == ["X", "H", "Y"]


def test_equality_is_the_only_witness(ask):
    """relu(x0 − 0.25) + relu(0.25 − x0) ≤ 0 holds at x0 = 0.25 alone, and < 0 nowhere."""
    layers = [linear([[1, 0], [-1, 0]], [-0.25, 0.25]), nn.ReLU(), linear([[1, 1], [0, 0]], [0, 0])]
    box = "(assert (and (>= X[0] 0.25) (<= X[0] 1) (>= X[1] 0) (<= X[1] 1)))"
    answer = ask(F + box + "(assert (<= Y[0] 0))", f=layers)
    assert (answer.word, answer.counterexample.x[0]) == ("sat", 0.25)
    assert ask(F + box + "(assert (== Y[0] 0))", f=layers).word == "sat"
    assert ask(F + box + "(assert (< Y[0] 0))", f=layers).word != "sat"
    assert ask(F + box.replace(">= X[0]", "> X[0]") + "(assert (<= Y[0] 0))", f=layers).word != "sat"
    # a strict bound beside: the witness is a step away from it
    assert ask(F + box.replace("<= X[1]", "< X[1]") + "(assert (and (<= Y[0] 0) (>= Y[1] 0)))", f=layers).word == "sat"


def test_a_witness_of_strict_bounds_is_inside(ask):
    layers = [linear([[1, 0], [0, 1]], [0, 0])]
    box = "(assert (and (> X[0] -1) (< X[0] 1) (>= X[1] -1) (<= X[1] 1)))"
    answer = ask(F + box + "(assert (>= Y[0] 0.99999))", f=layers)
    assert answer.word == "sat"
    assert 0.99999 <= answer.counterexample.x[0] < 1


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 50), gap=st.sampled_from([0.05, 0.3, 1.0]), related=st.booleans())
def test_unsat_only_where_no_point_is_found(ask, tmp_path, seed, gap, related):
    """Two networks at inputs that are at most 0.2 apart; points of a grid must agree with the answer."""
    near = "(assert (and (<= (- X[0] Z[0]) 0.2) (<= (- Z[0] X[0]) 0.2) (== X[1] Z[1])))" if related else SAME
    text = F + G.replace("(equal-to f) ", "") + X + Z + near + f"(assert (>= (- W[0] Y[1]) {gap}))"
    answer = ask(text, f=random_layers(seed), g=random_layers(seed + 1))
    f, g = (OnnxNetwork(tmp_path / f"{name}.onnx") for name in "fg")
    grid = np.linspace(-1, 1, 9)
    found = any(
        g.run(np.array([a + shift, b]))[0] - f.run(np.array([a, b]))[1] >= gap + 1e-4
        for a in grid for b in grid for shift in ((-0.2, 0.0, 0.2) if related else (0.0,)) if abs(a + shift) <= 1
    )  # fmt: skip
    assert not (found and answer.word == "unsat")
    assert answer.word in ("sat", "unsat")


def test_shapes_are_those_of_the_file_but_for_ones(ask):
    layers = random_layers(0)
    for shape in ("[2]", "[1,2]", "[2,1]"):
        index = {"[2]": "{}", "[1,2]": "0,{}", "[2,1]": "{},0"}[shape]
        text = F.replace("X real [2]", f"X real {shape}") + X + "(assert (<= Y[0] 1000))"
        for number in (0, 1):
            text = text.replace(f"X[{number}]", f"X[{index.format(number)}]")
        assert ask(text, f=layers).word == "sat"


def test_rows_of_an_input_are_images_only_if_the_property_is_about_one(tmp_path):
    """Each row is bounded by itself: read as a batch, the file would compute the same."""
    path = write_onnx(
        tmp_path, [("MatMul", "x w", "h"), ("Relu", "h", "y")], [3, 2], {"w": np.eye(2, dtype=np.float32)}
    )
    vnnlib = tmp_path / "p.vnnlib"
    for values, over in ((6, 5), (2, 1)):
        names = "".join(f"(declare-const {v}_{i} Real)\n" for v in "XY" for i in range(values))
        box = "".join(f"(assert (<= X_{i} {i}))\n(assert (>= X_{i} -1))\n" for i in range(values))
        for least, word in ((over + 0.5, "unsat"), (over - 0.5, "sat")):
            vnnlib.write_text(f"{names}{box}(assert (>= Y_{values - 1} {least}))\n")
            assert Networks().instance({"": path}, vnnlib).answer(LIMITS).word == word


def test_what_does_not_fit(ask, tmp_path):
    layers = random_layers(0)
    three = F.replace("X real [2]", "X real [3]") + X + "(assert (and (>= X[2] 0) (<= X[2] 1)))"
    with pytest.raises(LingraftError, match="about 3 inputs, but the network has 2"):
        ask(three, f=layers)
    with pytest.raises(
        LingraftError, match=r"declares W of network g with shape \[3\], but that output of its file has \[2\]"
    ):
        ask(F + G.replace("W real [2]", "W real [3]") + X + SAME + "(assert (<= W[0] Y[0]))", f=layers)
    with pytest.raises(LingraftError, match="declares 2 inputs of network f, but its file has 1"):
        ask(F.replace("(declare-output", "(declare-input V real [1]) (declare-output") + X, f=layers)
    with pytest.raises(LingraftError, match="no file is given for network g"):
        ask(F + G.replace("equal-to", "isomorphic-to") + X + SAME + "(assert (<= W[0] Y[0]))", f=layers)


def test_a_property_that_contradicts_itself(ask):
    assert ask(F + X + "(assert (and (> Y[0] Y[1]) (< Y[0] Y[1])))", f=random_layers(0)).word == "unsat"


def test_certificates_are_about_one_network(tmp_path, ask):
    ask(F + G + X + SAME + "(assert (> W[0] (+ Y[0] 1)))", f=random_layers(0))
    with pytest.raises(LingraftError, match="certificates are about one network"):
        verify_property(f"[('f', '{tmp_path / 'f.onnx'}')]", tmp_path / "p.vnnlib", check=True, progress=False)
    answer = verify_property(f"[('f', '{tmp_path / 'f.onnx'}')]", tmp_path / "p.vnnlib", progress=False).answer
    assert answer.word == "unsat"
