"""Building a torch.fx graph node by node, with the shape of every value known on the way."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from lingraft.errors import LingraftError
from lingraft.formats.shapes import call_shape, layer_shape

#: A network in which one image makes a value with more numbers than this is damaged, hostile, or beyond verification.
MAX_NUMBERS = 1 << 26


class GraphBuilder:
    """A `torch.fx.Graph` under construction and the modules and buffers it refers to.

    Shapes come from rules, or else from running each new node on meta tensors, which hold no data.
    """

    def __init__(self, input_shape: tuple[int, ...], batch: int):
        self.batch = batch
        self.root = nn.Module()
        self.graph = fx.Graph()
        self._samples: dict[fx.Node, Tensor] = {}
        self._counts: Counter[str] = Counter()
        if math.prod(input_shape) * batch > MAX_NUMBERS:
            raise LingraftError(f"the network takes {math.prod(input_shape):,} inputs, which is too many.")
        self.input = self.graph.placeholder("x")
        self._samples[self.input] = _without_data((batch, *input_shape))

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        """Shape of a value, the batch dimension included."""
        return tuple(self._samples[node].shape)

    def layer(self, module: nn.Module, x: fx.Node) -> fx.Node:
        """Call `module`, which is added to the network under a name made of its class."""
        module.eval()
        name = self._new_name(type(module).__name__.lower())
        self.root.add_module(name, module)
        shape = layer_shape(module, self.shape(x))
        if shape is not None:
            sample = _without_data(shape)
        else:
            tensors = {key: value.to("meta") for key, value in [*module.named_parameters(), *module.named_buffers()]}
            sample = torch.func.functional_call(module, tensors, (self._samples[x],))
        return self._record(self.graph.call_module(name, (x,)), sample)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """Call a torch function on values and plain numbers."""
        values = [arg for arg in args if isinstance(arg, fx.Node)]
        shape = None if kwargs or len(values) < len(args) else call_shape(function, [self.shape(v) for v in values])
        sample = function(*fx.map_arg(args, self._sample), **kwargs) if shape is None else _without_data(shape)
        return self._record(self.graph.call_function(function, args, kwargs), sample)

    def method(self, name: str, x: fx.Node, *args: Any) -> fx.Node:
        """Call a tensor method."""
        sample = getattr(self._samples[x], name)(*args)
        return self._record(self.graph.call_method(name, (x, *args)), sample)

    def constant(self, array: np.ndarray) -> fx.Node:
        """A buffer that holds `array`."""
        name = self._new_name("constant")
        tensor = torch.from_numpy(np.array(array))
        self.root.register_buffer(name, tensor)
        return self._record(self.graph.get_attr(name), tensor.to("meta"))

    def module_of(self, node: fx.Node) -> nn.Module | None:
        """The module that a node calls, if it calls one."""
        return self.root.get_submodule(str(node.target)) if node.op == "call_module" else None

    def exchange(self, node: fx.Node, module: nn.Module, x: fx.Node) -> None:
        """Let a node call `module` on x, under the name of the module it called before."""
        self.root.set_submodule(str(node.target), module.eval())
        node.args = (x,)

    def finish(self) -> fx.GraphModule:
        """The module, once the graph has its output; what does not lead to it is left out."""
        self.drop_unused()
        # takes over only the modules and buffers that the graph still refers to
        module = fx.GraphModule(self.root, self.graph, "ImportedNetwork")
        module.graph.lint()
        return module.eval()

    def drop_unused(self) -> None:
        """Leave out what does not lead to the output, which the graph has already."""
        for node in reversed(self.graph.nodes):
            if not node.users and node.op not in ("placeholder", "output"):
                self.graph.erase_node(node)

    def _sample(self, node: fx.Node) -> Tensor:
        return self._samples[node]

    def _record(self, node: fx.Node, sample: Tensor) -> fx.Node:
        if sample.numel() > MAX_NUMBERS:
            raise LingraftError(f"it makes {sample.numel():,} numbers, which is too many.")
        self._samples[node] = sample
        return node

    def _new_name(self, kind: str) -> str:
        self._counts[kind] += 1
        return f"{kind}{self._counts[kind]}"


def _without_data(shape: tuple[int, ...]) -> Tensor:
    return torch.empty(shape, device="meta")
