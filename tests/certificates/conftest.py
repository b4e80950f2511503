"""Networks as the checker sees them, exact minima in rational numbers, and certificates of real proofs."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save_model
from torch import nn

from lingraft.certificates.network import Network
from lingraft.certificates.onnx_reader import load_network
from lingraft.certificates.nodes import Input
from lingraft.interop.onnx_export import export_onnx

Layers = list[tuple[np.ndarray, np.ndarray]]


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
        protos = [helper.make_node(op, i.split(), [o], **(rest[0] if rest else {})) for op, i, o, *rest in nodes]
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


class Exact:
    """Rational arithmetic on a fully connected network of one input: no rounding anywhere."""

    def __init__(self, layers: Layers):
        self.layers = [
            (
                [[Fraction(float(w)) for w in row] for row in weight.astype(np.float32)],
                [Fraction(float(b)) for b in bias.astype(np.float32)],
            )
            for weight, bias in layers
        ]

    def minima(self, low: float, high: float) -> list[Fraction]:
        """The smallest value of each output for low ≤ x ≤ high: all are linear between the points of `_pieces`."""
        pieces = self._pieces(Fraction(low), Fraction(high))
        return [
            min(a * x + b for left, right, lines in pieces for a, b in [lines[i]] for x in (left, right))
            for i in range(len(pieces[0][2]))
        ]

    def _pieces(self, low: Fraction, high: Fraction):
        pieces = [(low, high, [(Fraction(1), Fraction(0))])]
        for number, (weight, bias) in enumerate(self.layers):
            new = []
            for left, right, lines in pieces:
                out = [
                    (
                        sum(w * a for w, (a, _) in zip(row, lines, strict=True)),
                        sum((w * b for w, (_, b) in zip(row, lines, strict=True)), shift),
                    )
                    for row, shift in zip(weight, bias, strict=True)
                ]
                if number == len(self.layers) - 1:
                    new.append((left, right, out))
                    continue
                cuts = sorted({left, right} | {-b / a for a, b in out if a and left < -b / a < right})
                for start, end in zip(cuts, cuts[1:] or cuts, strict=False):
                    middle = (start + end) / 2
                    new.append(
                        (start, end, [(a, b) if a * middle + b > 0 else (Fraction(0), Fraction(0)) for a, b in out])
                    )
            pieces = new
        return pieces


@pytest.fixture(scope="session")
def exact() -> type[Exact]:
    """Exact minima of networks of one input."""
    return Exact


@pytest.fixture(scope="session")
def evaluate() -> Callable[[Network, np.ndarray], list[np.ndarray]]:
    """evaluate(network, x): the values of all nodes for one input in the order of the file."""

    def values(network: Network, x: np.ndarray) -> list[np.ndarray]:
        from lingraft.certificates.network import inner

        found: list[np.ndarray] = []
        for node in network.nodes:
            inputs = [found[j] for j in node.inputs]
            found.append(inner(x.astype(np.float64)) if isinstance(node, Input) else node.forward(*inputs))
        return found

    return values
