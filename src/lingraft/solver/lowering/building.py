"""Nodes under construction, and what handlers of operations append to them."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from lingraft.errors import LingraftError
from lingraft.model.activations import Activation, kind_of
from lingraft.model.activations.square import SQUARE
from lingraft.model.in_place import title
from lingraft.solver.nodes import Convolution, Dense, Gather, Node, Product, Scale, Shape, Site, Sum

#: name of an operation → its handler: (building, call, arguments of the operation) → position of the resulting node,
#: or positions, where the operation gives several tensors
HANDLERS: dict[str, Callable[..., Any]] = {}


def handles(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For `@handles("linear")` before the handler of an operation of that name."""

    def register(handler: Callable[..., Any]) -> Callable[..., Any]:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


def inner(shape: Sequence[int]) -> Shape:
    """Shape used inside for a value of outer shape (C, H, W) or any other; a single number is a vector of one."""
    return (shape[1], shape[2], shape[0]) if len(shape) == 3 else tuple(shape) or (1,)


def outer(shape: Shape) -> Shape:
    """Inverse of `inner`."""
    return (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape


class Building:
    """The nodes so far, and which node each fx call became."""

    def __init__(self, graph: fx.GraphModule):
        self.graph = graph
        self.nodes: list[Node] = []
        self.position: dict[fx.Node, int] = {}
        #: calls that give several tensors: the node of each
        self.parts: dict[fx.Node, Sequence[int]] = {}
        #: the recorded value of every call, for one image
        self.values: dict[fx.Node, Any] = {}
        #: zero-padded maps: the node that was padded, and by how much (top, left, bottom, right)
        self.padded: dict[int, tuple[int, tuple[int, int, int, int]]] = {}

    def title(self, call: fx.Node) -> str:
        """The call as messages name it."""
        return title(call, self.graph)

    def depends(self, argument: Any) -> bool:
        """Whether an argument is a value that depends on the image."""
        return isinstance(argument, fx.Node) and (argument in self.position or argument in self.parts)

    def shape(self, call: fx.Node) -> Shape:
        """Outer shape of a call's value, without the batch."""
        return tuple(self.values[call].shape[1:])

    def constant(self, call: fx.Node, value: Any) -> Tensor:
        """A tensor that the call must be given as a constant."""
        if not isinstance(value, Tensor):
            raise LingraftError(f"{self.title(call)} computes its weights from the image. Use fixed ones.")
        return value.detach()

    def number(self, value: float) -> float:
        """A number written in the model, rounded to the precision in which the model uses it."""
        dtype = next((p.dtype for p in self.graph.parameters()), torch.float32)
        return float(torch.tensor(value, dtype=dtype))

    def inner_constant(self, constant: Tensor, shape: Shape) -> Tensor:
        """A constant broadcast to a value of outer shape `shape`, in the inner order, float64."""
        full = constant.detach().double().expand(1, *shape)[0]
        return (full.permute(1, 2, 0) if full.dim() == 3 else full).contiguous().view(inner(shape))

    # --- one node or a few ---------------------------------------------------------------------

    def add(self, node: Node) -> int:
        """Append a node."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def scale(self, name: str, source: int, weight: Tensor, bias: Tensor) -> int:
        """weight·x + bias of the node `source`."""
        return self.add(Scale(name, self.nodes[source].shape, [source], weight, bias))

    def sum(self, name: str, sources: list[int], signs: list[float]) -> int:
        """Σ sign · node, of nodes of one shape."""
        return self.add(Sum(name, self.nodes[sources[0]].shape, sources, signs))

    def bend(self, name: str, source: int, function: Activation) -> int:
        """A function of each value of the node `source`, which is no activation of the model."""
        shape = self.nodes[source].shape
        none = torch.zeros(shape).double()
        return self.add(Site(name, shape, [source], kind_of(function), none.bool(), none, none, public=False))

    def product(self, name: str, one: int, other: int) -> int:
        """The product of two nodes of one shape, value by value, as `Product` says."""
        if one == other:
            return self.bend(f"{name}.square", one, SQUARE)
        shape = self.nodes[one].shape
        ones, none = torch.ones(shape).double(), torch.zeros(shape).double()
        factors = [self.scale(f"{name}.factor", of, ones, none) for of in (one, other)]
        parts = []
        for side, sign in (("plus", 1.0), ("minus", -1.0)):
            z = self.sum(f"{name}.{side}", factors, [1.0, sign])
            parts.append(self.bend(f"{name}.{side}.square", z, SQUARE))
        parts += [self.scale(f"{name}.rest", of, none, none) for of in (one, other)]
        return self.add(Product(name, shape, parts, [0.25, -0.25, 1.0, 1.0]))

    def gather(self, name: str, source: int, moved: Tensor) -> int:
        """`moved` (outer shape): for every value its 1-based outer flat position in the source, 0 for zero."""
        shape, here = inner(moved.shape), self.nodes[source].shape
        index = moved.round().long() - 1
        index = (index.permute(1, 2, 0) if index.dim() == 3 else index).flatten()
        if len(here) == 3:
            height, width, channels = here
            c, rest = index.clamp(min=0) // (height * width), index.clamp(min=0) % (height * width)
            index = torch.where(index < 0, index, rest * channels + c)
        if shape == here and torch.equal(index, torch.arange(len(index))):
            return source
        return self.add(Gather(name, shape, [source], here, index))

    def numbered(self, source: int, shape: Sequence[int] | None = None) -> Tensor:
        """1-based outer flat positions of a node: what a moving operation does to them is the move."""
        shape = outer(self.nodes[source].shape) if shape is None else shape
        return torch.arange(1, math.prod(shape) + 1, dtype=torch.float64).view(tuple(shape))

    def broadcast(self, call: fx.Node, source: fx.Node, shape: Shape) -> int:
        """A value, repeated where broadcasting to this outer shape repeats it."""
        own = self.shape(source)
        if own == shape:
            return self.position[source]
        if len(own) != len(shape):
            raise LingraftError(f"{self.title(call)} broadcasts {own} to {shape}. Use shapes of equal length.")
        return self.gather(call.name, self.position[source], self.numbered(self.position[source], own).expand(shape))

    def mix(
        self,
        name: str,
        source: int,
        dims: Sequence[int],
        matrix: Tensor,
        bias: Tensor | None,
        arranged: Callable[[Tensor], Tensor],
    ) -> int:
        """matrix (out, in) times the values along these outer dimensions, plus a bias (out,), for all others alike.

        What is not mixed are the places of a map and what is mixed its channels, so that it is a convolution by 1×1.
        `arranged` brings the result, of shape (*dimensions not mixed, out), into its own.
        """
        here = self.numbered(source)
        kept = [d for d in range(here.dim()) if d not in dims]
        sizes = [here.shape[d] for d in kept]
        out, count = matrix.shape
        bias = torch.zeros(out) if bias is None else bias
        apart = here.permute(*kept, *dims).reshape(-1, count)
        if len(apart) == 1:
            flat = self.gather(name, source, apart[0])
            result = self.add(Dense(name, (out,), [flat], matrix.double().contiguous(), bias.double()))
        else:
            spread = self.gather(name, source, apart.t()[:, :, None])
            places, shape = (len(apart), 1, count), (len(apart), 1, out)
            one, none = (1, 1), (0, 0, 0, 0)
            weights = matrix.double().contiguous()
            node = Convolution(name, shape, [spread], places, weights, bias.double(), one, one, none, one)
            result = self.add(node)
        numbers = self.numbered(result).view(out, -1).t().reshape(*sizes, out)
        return self.gather(name, result, arranged(numbers))
