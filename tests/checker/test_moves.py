"""Slices, splits, joins and repeated pixels: the checker's values are onnxruntime's, and proofs about them hold."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from handmade_onnx import integers, weights, write_onnx

from lingraft.errors import LingraftError
from lingraft.formats.certificate_writer import claim_of_image
from lingraft.formats.onnx_import import load_onnx
from lingraft.pool.images import verify_each
from lingraft.pool.place import HERE
from lingraft.solver.request import Limits, Request
from lingraft.work.certify import Certifier

ODD = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
CASES: dict[str, tuple[list[tuple], list[int], dict[str, np.ndarray]]] = {
    "slice": ([("Slice", "x a b c d", "y")], [1, 2, 5, 6], {"a": integers(1, -1), "b": integers(100, -100), "c": integers(2, -1), "d": integers(2, -2)}),
    "gather": ([("Gather", "x i", "y", {"axis": 2})], [1, 2, 5], {"i": np.array([[0, -1], [2, 2]])}),
    "gather one": ([("Gather", "x i", "y", {"axis": 1})], [1, 3, 4, 4], {"i": np.int64(-2)}),
    "split": ([("Split", "x s", "a b c", {"axis": 1}), ("Sub", "c a", "y")], [1, 6, 2, 2], {"s": integers(2, 2, 2)}),
    "join with constants": ([("Concat", "c x d x", "y", {"axis": 1})], [1, 2, 3], {"c": weights(1, 1, 3), "d": weights(1, 2, 3)}),
    "mean of sides": ([("ReduceMean", "x", "y", {"axes": [2, 3], "keepdims": 0})], [1, 3, 4, 5], {}),
    "mean of channels": ([("ReduceMean", "x", "y", {"axes": [1]})], [1, 3, 4, 5], {}),
    "sum": ([("ReduceSum", "x a", "y")], [1, 3, 4], {"a": integers(-1)}),
    "sequence": ([("Conv", "x w b", "h", {"pads": [1, 2], "strides": [2]}), ("MaxPool", "h", "m", {"kernel_shape": [2]}), ("AveragePool", "m", "a", {"kernel_shape": [2], "ceil_mode": 1, "strides": [2]}), ("GlobalAveragePool", "a", "y")], [1, 2, 12], {"w": weights(3, 2, 3), "b": weights(3)}),
    "transposed convolution": ([("ConvTranspose", "x w b", "y", {"strides": [2, 3], "pads": [1, 0, 2, 1], "output_padding": [1, 2], "group": 2, "dilations": [2, 1]})], [1, 4, 3, 4], {"w": weights(4, 2, 3, 2), "b": weights(4)}),
    "repeated pixels": ([("Resize", "x  s", "y", ODD)], [1, 2, 3, 2], {"s": np.array([1, 1, 2, 3], np.float32)}),
    "windows over the end": ([("MaxPool", "x", "m", {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}), ("AveragePool", "m", "y", {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 0, 0]})], [1, 2, 7, 8], {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_values_are_onnxruntimes(written, evaluate, tmp_path, case):
    nodes, shape, constants = CASES[case]
    network = written(nodes, shape, constants)
    session = onnxruntime.InferenceSession(str(tmp_path / "made.onnx"), providers=["CPUExecutionProvider"])
    for seed in range(3):
        x = weights(*shape, seed=seed)
        expected = session.run(None, {"x": x})[0].reshape(-1)
        np.testing.assert_allclose(evaluate(network, x[0])[-1].reshape(-1), expected, rtol=1e-4, atol=1e-5)


REFUSED: dict[str, tuple[list[tuple], dict[str, np.ndarray], str]] = {
    "a slice of nothing": ([("Slice", "x a b", "y")], {"a": integers(0, 3), "b": integers(1, 3)}, "holds nothing"),
    "the batch cut away": ([("Gather", "x i", "h", {"axis": 0}), ("Flatten", "h", "y")], {"i": np.int64(0)}, "batch dimension"),
    "no such place": ([("Gather", "x i", "y", {"axis": 1})], {"i": integers(7)}, "do not exist"),
    "parts that are not all": ([("Split", "x s", "y z", {"axis": 1})], {"s": integers(1, 2)}, "parts of"),
    "half pixels": ([("Resize", "x  s", "y", {**ODD, "nearest_mode": "ceil"})], {"s": np.array([1, 1, 2, 2], np.float32)}, "ceil"),
    "no whole factor": ([("Resize", "x  s", "y", ODD)], {"s": np.array([1, 1, 1.5, 2], np.float32)}, "whole factors"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(written, case):
    nodes, constants, message = REFUSED[case]
    with pytest.raises(LingraftError, match=message):
        written(nodes, [1, 2, 4, 4], constants)


def test_proofs_about_them_are_accepted(tmp_path: Path) -> None:
    """Halves of an image are bent apart, joined with a constant, turned around and averaged; the proof has to branch."""
    nodes = [
        ("Conv", "x w b", "h", {"pads": [1, 1, 1, 1]}),
        ("Split", "h s", "left right", {"axis": 1}),
        ("Relu", "left", "l"),
        ("Slice", "right i j a d", "r"),
        ("Concat", "c r l", "m", {"axis": 1}),
        ("Conv", "m v", "n"),
        ("Relu", "n", "o"),
        ("ReduceMean", "o", "p", {"axes": [2, 3]}),
        ("Flatten", "p", "q"),
        ("Gemm", "q u", "y"),
    ]
    constants = {
        "w": weights(6, 1, 3, 3), "b": weights(6), "s": integers(4, 2), "i": integers(-1), "j": integers(-9), "a": integers(3),
        "d": integers(-1), "c": weights(1, 1, 4, 4), "v": weights(5, 7, 2, 2), "u": weights(5, 3),
    }  # fmt: skip
    path = write_onnx(tmp_path, nodes, [1, 1, 4, 4], constants)
    model = load_onnx(path)
    image = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        request = Request(model, image, model(image).argmax(1), eps=0.15)
    ((_, result),) = verify_each(request, Limits(60.0, prove=True), HERE)
    assert result.verdict == "verified"
    assert result.stage == "branch"
    certifier = Certifier(path, tmp_path, True)
    certifier.add("image", claim_of_image(request, 0, {}), result, request.network)
    assert (certifier.tally.checked, certifier.tally.missing, certifier.tally.rejected) == (1, {}, {})
