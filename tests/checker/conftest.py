"""Networks as the checker sees them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from exact_rational import Layers
from onnx import TensorProto, helper, numpy_helper, save_model
from torch import nn

from lingraft.checker.network import Network, inner
from lingraft.checker.nodes import Input
from lingraft.checker.onnx_reader import load_network
from lingraft.formats.onnx_export import export_onnx


@pytest.fixture
def checked(tmp_path: Path) -> Callable[..., Network]:
    """checked(model, input_shape, **options): what the checker reads of the exported file, which is net.onnx."""

    def make(model: nn.Module, input_shape: tuple[int, ...], **options) -> Network:
        export_onnx(model.eval(), tmp_path / "net.onnx", input_shape=input_shape, **options)
        return load_network(tmp_path / "net.onnx")

    return make


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Network]:
    """written(nodes, input_shape, weights): a network from input `x` to output `y`, read by the checker.

    A node is (operation, inputs, output, attributes…).
    """

    def make(
        nodes: list[tuple], input_shape: list[int], weights: dict[str, np.ndarray] | None = None, opset: int = 13
    ) -> Network:
        # two spaces between inputs: one is left out
        protos = [
            helper.make_node(op, i.split(" "), o.split(), **(rest[0] if rest else {})) for op, i, o, *rest in nodes
        ]
        graph = helper.make_graph(
            protos,
            "test",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, input_shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
        )
        path = tmp_path / "made.onnx"
        save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7), str(path))
        return load_network(path)

    return make


@pytest.fixture
def fully_connected(written) -> Callable[[Layers], Network]:
    """A network of float32 layers (weight, bias) with ReLU between them."""

    def make(layers: Layers) -> Network:
        nodes, weights = [], {}
        for i, (weight, bias) in enumerate(layers):
            weights |= {f"w{i}": weight.astype(np.float32), f"b{i}": bias.astype(np.float32)}
            last = i == len(layers) - 1
            nodes.append(("Gemm", f"{'h' + str(i) if i else 'x'} w{i} b{i}", "y" if last else f"z{i}", {"transB": 1}))
            if not last:
                nodes.append(("Relu", f"z{i}", f"h{i + 1}"))
        return written(nodes, [1, layers[0][0].shape[1]], weights)

    return make


@pytest.fixture(scope="session")
def evaluate() -> Callable[[Network, np.ndarray], list[np.ndarray]]:
    """evaluate(network, x): the values of all nodes for one input in the order of the file."""

    def values(network: Network, x: np.ndarray) -> list[np.ndarray]:
        found: list[np.ndarray] = []
        for node in network.nodes:
            inputs = [found[j] for j in node.inputs]
            found.append(inner(x.astype(np.float64)) if isinstance(node, Input) else node.forward(*inputs))
        return found

    return values
