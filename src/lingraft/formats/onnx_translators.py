"""The functions that write ONNX operations in torch, by operation."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor, fx, nn

from lingraft.formats.graph_builder import GraphBuilder
from lingraft.formats.onnx_node import OnnxNode

#: Writes a node; what it returns stands for the node's output, or for all of them in their order.
Translator = Callable[[GraphBuilder, OnnxNode], fx.Node | Sequence[fx.Node]]
M = TypeVar("M", bound=nn.Module)

TRANSLATORS: dict[str, Translator] = {}


def translates(*operations: str) -> Callable[[Translator], Translator]:
    """For `@translates("Neg")` before a function that writes such a node with torch layers or functions.

    What it writes is compared with onnxruntime whenever a file is read; the verifier must know the layers it uses.
    """

    def register(translator: Translator) -> Translator:
        for operation in operations:
            TRANSLATORS[operation] = translator
        return translator

    return register


def with_tensors(module: M, **tensors: Tensor | None) -> M:
    """`module`, built without data, with these parameters and buffers."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        current = getattr(module, name)
        if current.shape != tensor.shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(current.shape)}")
        setattr(module, name, nn.Parameter(tensor) if isinstance(current, nn.Parameter) else tensor)
    return module
