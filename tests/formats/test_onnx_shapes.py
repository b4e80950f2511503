"""Every operation of the one list is exported: onnxruntime gives what the model gives."""

import onnx
import operation_cases as cases
import pytest

import lingraft
from lingraft.model.operations import KNOWN

#: What networks around an operation are written with besides.
AROUND = {"Relu", "Sigmoid", "Mul", "Add", "Flatten", "Gemm"}


@pytest.mark.parametrize("name", cases.NAMES)
def test_exported_with_the_operations_that_the_list_names(name: str, tmp_path) -> None:
    model, shape, operations = cases.around(name)
    path = tmp_path / "net.onnx"
    lingraft.export_onnx(model, path, input_shape=shape, dynamic_batch=True)  # compares the two
    written = {node.op_type for node in onnx.load(path).graph.node}
    assert written <= AROUND | {
        name for operation in operations for name in KNOWN[operation].onnx + KNOWN[operation].rarely
    }
