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


class TooPreciseError(LingraftError):
    """A number that float32 does not hold."""


class GraphBuilder:
    """A `torch.fx.Graph` under construction and the modules and buffers it refers to.

    Shapes come from rules, or else from running each new node on meta tensors, which hold no data.

    The first dimension of every value is the batch here. In a file that takes one input at a time (`batch` 1) there may
    be values without it, like a vector of shape (n,) where (1, n) could be: such a value is `bare`, and has one
    dimension more here than in the file.
    """

    def __init__(
        self, input_shape: tuple[int, ...], batch: int, bare: bool = False, dtype: torch.dtype = torch.float32
    ):
        self.batch, self.dtype = batch, dtype
        self.root = nn.Module()
        self.graph = fx.Graph()
        self._samples: dict[fx.Node, Tensor] = {}
        self._bare: set[fx.Node] = set()
        self._counts: Counter[str] = Counter()
        self.require_size(math.prod(input_shape) * batch)
        self.input = self.graph.placeholder("x")
        self._samples[self.input] = self._without_data((batch, *input_shape))
        if bare:
            self._bare.add(self.input)

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        """Shape of a value, the batch dimension included."""
        return tuple(self._samples[node].shape)

    def file_shape(self, node: fx.Node) -> tuple[int, ...]:
        """Shape of a value as the file has it."""
        return self.shape(node)[1:] if node in self._bare else self.shape(node)

    def is_bare(self, node: fx.Node) -> bool:
        """Whether the file has no batch dimension in this value."""
        return node in self._bare

    def reshape(self, x: fx.Node, shape: tuple[int, ...]) -> fx.Node:
        """x in another shape of the file, for any batch size."""
        old, bare = self.file_shape(x), self.batch == 1 and (len(shape) < 2 or shape[0] != 1)
        if math.prod(old) != math.prod(shape):
            raise LingraftError(f"a change of shape from {old} to {shape} is not supported.")
        if not bare and (not shape or shape[0] != self.batch):
            raise LingraftError(f"a change of shape from {old} to {shape} does not keep the batch dimension.")
        return self._reshaped(x, shape if bare else shape[1:], bare)

    def bare(self, x: fx.Node, rank: int = 0) -> fx.Node:
        """x as a bare value, whose shape in the file is one of at least that rank: with ones in front."""
        if self.batch != 1:
            raise LingraftError("something that reaches across the batch dimension is not supported.")
        shape = self.file_shape(x)
        return self._reshaped(x, (1,) * (rank - len(shape)) + shape, True)

    def settled(self, x: fx.Node) -> fx.Node:
        """x with the batch dimension, if its shape in the file can be understood so; one of shape (1,) is bare."""
        alone = self.batch == 1 and len(self.shape(x)) == 1
        return self.reshape(x, self.file_shape(x)) if alone or x in self._bare else x

    def _reshaped(self, x: fx.Node, rest: tuple[int, ...], bare: bool) -> fx.Node:
        if self.shape(x)[1:] == rest and self.is_bare(x) == bare:
            return x
        flat = len(rest) == 1 and len(self.shape(x)) > 1
        node = self.layer(nn.Flatten(), x) if flat else self.method("reshape", x, -1, *rest)
        (self._bare.add if bare else self._bare.discard)(node)
        return node

    def require_size(self, numbers: int) -> None:
        """Refuse a value of so many numbers, if these are too many."""
        if numbers > MAX_NUMBERS:
            raise LingraftError(f"a value of {numbers:,} numbers, which is too many.")

    def tensor(self, array: np.ndarray) -> Tensor:
        """Numbers of a file in the precision of the network, which must hold them."""
        array = np.array(array)
        if self.dtype == torch.float32 and array.dtype == np.float64 and not (array.astype(np.float32) == array).all():
            raise TooPreciseError("the network has numbers that single precision does not hold.")
        return torch.from_numpy(array).to(self.dtype)

    def layer(self, module: nn.Module, x: fx.Node) -> fx.Node:
        """Call `module`, which is added to the network under a name made of its class."""
        module.eval().to(self.dtype)
        name = self._new_name(type(module).__name__.lower())
        self.root.add_module(name, module)
        shape = layer_shape(module, self.shape(x))
        if shape is not None:
            sample = self._without_data(shape)
        else:
            tensors = {key: value.to("meta") for key, value in [*module.named_parameters(), *module.named_buffers()]}
            sample = torch.func.functional_call(module, tensors, (self._samples[x],))
        return self._record(self.graph.call_module(name, (x,)), sample)

    def call(self, function: Callable[..., Any], *args: Any) -> fx.Node:
        """Call a torch function on values and plain numbers."""
        shape = call_shape(function, fx.map_arg(args, self.shape))
        sample = function(*fx.map_arg(args, self._sample)) if shape is None else self._without_data(shape)
        return self._record(self.graph.call_function(function, args), sample)

    def method(self, name: str, x: fx.Node, *args: Any) -> fx.Node:
        """Call a tensor method."""
        sample = getattr(self._samples[x], name)(*args)
        return self._record(self.graph.call_method(name, (x, *args)), sample)

    def constant(self, array: np.ndarray) -> fx.Node:
        """A buffer that holds `array`."""
        name = self._new_name("constant")
        tensor = self.tensor(array)
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
        self.require_size(sample.numel())
        self._samples[node] = sample
        if any(source in self._bare for source in node.all_input_nodes):
            self._bare.add(node)
        return node

    def _new_name(self, kind: str) -> str:
        self._counts[kind] += 1
        return f"{kind}{self._counts[kind]}"

    def _without_data(self, shape: tuple[int, ...]) -> Tensor:
        return torch.empty(shape, dtype=self.dtype, device="meta")
