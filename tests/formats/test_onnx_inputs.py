"""Files with several inputs: X_0 … runs over all of them, named ones are found by name, witnesses are onnxruntime's."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from lingraft import LingraftError, load_onnx, verify_property
from lingraft.formats.onnx_network import OnnxNetwork
from lingraft.solver.request import Limits
from lingraft.work.vnncomp.networks import Networks

#: a has the dimensions (1, 2, 2), b (open, 3), c none but (2,)
WEIGHTS = {"wa": (4, 3), "wb": (3, 3), "wc": (2, 3)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """y = relu(a·Wa + b·Wb) + c·Wc, three outputs."""
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.normal(size=size).astype(np.float32), name) for name, size in WEIGHTS.items()
    ]
    nodes = [
        helper.make_node("Flatten", ["a"], ["flat"]),
        helper.make_node("MatMul", ["flat", "wa"], ["first"]),
        helper.make_node("MatMul", ["b", "wb"], ["second"]),
        helper.make_node("Add", ["first", "second"], ["both"]),
        helper.make_node("Relu", ["both"], ["bent"]),
        helper.make_node("MatMul", ["c", "wc"], ["third"]),
        helper.make_node("Add", ["bent", "third"], ["y"]),
    ]
    shapes = {"a": [1, 2, 2], "b": ["batch", 3], "c": [2], "y": [1, 3]}
    *inputs, output = (helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in shapes.items())
    graph = helper.make_graph(nodes, "g", inputs, [output], weights)
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def outputs(path: Path, x: np.ndarray) -> np.ndarray:
    """What onnxruntime gives nine numbers, a, b and c one after the other."""
    a, b, c = np.split(x.astype(np.float32), [4, 7])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"a": a.reshape(1, 2, 2), "b": b[None], "c": c})[0].ravel()


def test_they_are_one_vector(file: Path) -> None:
    network = OnnxNetwork(file)
    assert network.input_shape == (9,)
    for x in np.random.default_rng(1).normal(size=(5, 9)):
        np.testing.assert_allclose(network.run(x), outputs(file, x), rtol=1e-5, atol=1e-6)


def numbered(path: Path, above: float) -> Path:
    """A property in 1.0: y[0] reaches `above` where all inputs are in [0, 1], but the last, which is 0.25."""
    lines = [f"(declare-const X_{i} Real)" for i in range(9)] + [f"(declare-const Y_{i} Real)" for i in range(3)]
    lines += [
        f"(assert (>= X_{i} {0 if i < 8 else 0.25}))\n(assert (<= X_{i} {1 if i < 8 else 0.25}))" for i in range(9)
    ]
    (path / "p.vnnlib").write_text("\n".join([*lines, f"(assert (>= Y_0 {above}))"]))
    return path / "p.vnnlib"


def largest(file: Path) -> float:
    """The largest y[0] of the region: it is convex, so at a corner."""
    corners = np.stack(np.meshgrid(*[[0.0, 1.0]] * 8, indexing="ij"), -1).reshape(-1, 8)
    return max(float(outputs(file, np.append(corner, 0.25))[0]) for corner in corners)


def test_numbered_inputs_run_over_all_of_them(file: Path, tmp_path: Path) -> None:
    most = largest(file)
    vnnlib = numbered(tmp_path, most + 0.01)
    assert verify_property(file, vnnlib, timeout=300, progress=False).answer.word == "unsat"
    with pytest.raises(LingraftError, match="one network with one input"):
        verify_property(file, vnnlib, check=True, progress=False)
    answer = verify_property(file, numbered(tmp_path, most - 0.01), timeout=300, progress=False).answer
    assert answer.word == "sat"
    assert answer.counterexample is not None
    assert outputs(file, answer.counterexample.x)[0] >= most - 0.01


@pytest.mark.parametrize("named", [False, True])
def test_declared_inputs_are_found_by_their_names(file: Path, tmp_path: Path, named: bool) -> None:
    """In 2.0 they are declared in any order, if they say their names."""
    declared = ["(declare-input A real [1,2,2]{})", "(declare-input B real [1,3]{})", "(declare-input C real [2]{})"]
    declared = [text.format(f' "{text[15].lower()}"' if named else "") for text in declared]
    if named:
        declared = [declared[2], declared[0], declared[1]]
    elements = [f"A[0,{i},{j}]" for i in (0, 1) for j in (0, 1)] + [f"B[0,{i}]" for i in range(3)] + ["C[0]"]
    bounds = [f"(assert (>= {e} 0)) (assert (<= {e} 1))" for e in elements] + ["(assert (== C[1] 0.25))"]
    most = largest(file)
    for above, word in ((most + 0.01, "unsat"), (most - 0.01, "sat")):
        head = f"(vnnlib-version <2.0>)\n(declare-network f {' '.join(declared)} (declare-output Y real [1,3]))\n"
        (tmp_path / "p.vnnlib").write_text(head + "\n".join([*bounds, f"(assert (>= Y[0,0] {above}))"]))
        answer = Networks().instance({"f": file}, tmp_path / "p.vnnlib").answer(Limits(300.0))
        assert answer.word == word


def test_a_wrong_name_or_number_is_an_error(file: Path, tmp_path: Path) -> None:
    for inputs, message in (
        ('(declare-input A real [1,2,2] "a") (declare-input B real [1,3] "b") (declare-input C real [2] "d")', "no input 'd'"),
        ("(declare-input A real [1,2,2]) (declare-input B real [1,3])", "declares 2 inputs of network f, but its file has 3"),
    ):  # fmt: skip
        text = f"(vnnlib-version <2.0>)\n(declare-network f {inputs} (declare-output Y real [1,3]))\n(assert (>= Y[0,0] 1))"
        (tmp_path / "p.vnnlib").write_text(text)
        with pytest.raises(LingraftError, match=message):
            Networks().instance({"f": file}, tmp_path / "p.vnnlib")
    with pytest.raises(LingraftError, match="has 3 inputs"):
        load_onnx(file)
