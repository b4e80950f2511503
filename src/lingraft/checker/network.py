"""The network that is checked, and how it is put together.

Values of rank 4, (1, C, H, W) in the file, are kept channels last; all others are vectors. Products and sums with
constants behind an activation become part of its site, if that is exact: so a grafted neuron, written as
relu(x)·keep + x·slope + shift with keep 0, is seen to be linear.

The activations of a file are numbered in its order: one number for each Relu, LeakyRelu, PRelu and Abs node; for a Clip
or HardSigmoid node one for each end, the lower one first; and for a MaxPool node one for each comparison of the
tournament max(a, b) = b + relu(a − b) that it becomes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lingraft.checker.nodes import Dense, Gather, Node, Scale, Site, Sum
from lingraft.checker.rounding import Array
from lingraft.checker.rows import Integers, Shape
from lingraft.errors import LingraftError

#: Values with more numbers than this are refused, and networks for which more numbers would be made in all, beside the
#: weights: half a GiB. A file of a few bytes can ask for any amount.
MAX_VALUES, MAX_ALL_VALUES = 1 << 24, 1 << 26

#: Dimensions of a value at most.
MAX_RANK = 16


@dataclass
class Network:
    """Nodes in order, the first the input and the last the output; `shape` is that of one input, as in the file."""

    nodes: list[Node]
    shape: Shape
    sha256: str
    #: how many activations the file has
    activations: int

    @property
    def sites(self) -> dict[int, int]:
        """Node of each activation that bends anything, by its number in the file."""
        return {node.number: i for i, node in enumerate(self.nodes) if isinstance(node, Site)}

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return self.nodes[-1].size

    def with_largest(self, spec: Array, offset: Array, group: int) -> "Network":
        """Followed by spec·y + offset and then, of every `group` rows, the largest. Numbers of activations go on."""
        builder = Builder(list(self.nodes), self.activations)
        last, count = len(self.nodes) - 1, len(offset)
        rows = builder.add(Dense([last], (count,), self.nodes[last].shape, spec, offset))
        numbers = np.arange(count).reshape(1, count // group, group)
        value = builder.plain(rows, [1, count])
        players = [builder.moved(value, lambda _, j=j: numbers[:, :, j]) for j in range(group)]  # type: ignore[misc]
        builder.node_of(builder.largest(players))
        return Network(builder.nodes, self.shape, self.sha256, builder.activations)


def inner(array: np.ndarray) -> np.ndarray:
    """An array of the file, without its batch dimension, in the order used here."""
    return array.transpose(1, 2, 0) if array.ndim == 3 else array.reshape(-1)


def inner_places(shape: Shape) -> Integers:
    """For every flat index in the file's order, the flat index in the order used here."""
    places = np.empty(math.prod(shape), dtype=np.int64)
    places[inner(np.arange(len(places)).reshape(shape)).reshape(-1)] = np.arange(len(places))
    return places


@dataclass
class Value:
    """bend·relu(b) + slope·b + shift of the node b = `base`, value by value; `shape` is the file's, with the batch."""

    shape: list[int]
    base: int
    bend: Array
    slope: Array
    shift: Array
    number: int = -1


def exact_product(a: Array, b: Array) -> bool:
    """Whether a·b is exact: the error of a product is a float64 number too, found by Dekker's method."""
    moderate = [((x == 0) | ((np.abs(x) > 1e-60) & (np.abs(x) < 1e60))).all() for x in (a, b)]
    (high, low), (above, below) = ((big - (big - x), x - (big - (big - x))) for x in (a, b) for big in [134217729 * x])
    error = (((high * above - a * b) + high * below) + low * above) + low * below
    return all(moderate) and not error.any()


def exact_sum(a: Array, b: Array) -> bool:
    """Whether a + b is exact: the error of a sum is a float64 number, found by Knuth's two-sum."""
    total = a + b
    part = total - a
    return not ((a - (total - part)) + (b - part)).any()


class Builder:
    """Adds nodes; `activations` counts those so far."""

    def __init__(self, nodes: list[Node], activations: int):
        self.nodes, self.activations = nodes, activations
        self.spent = sum(node.size for node in nodes)

    def spend(self, numbers: int) -> None:
        """Called before as many numbers are made."""
        self.spent += numbers
        if self.spent > MAX_ALL_VALUES:
            raise LingraftError(f"a network of more than {MAX_ALL_VALUES:,} numbers, which is too large")

    def inner_shape(self, shape: Sequence[int]) -> Shape:
        if not 1 <= math.prod(shape) <= MAX_VALUES or len(shape) > MAX_RANK:
            raise LingraftError(f"a value of shape {list(shape)}, which is empty or too large")
        return (shape[2], shape[3], shape[1]) if len(shape) == 4 else (math.prod(shape),)

    def add(self, node: Node) -> int:
        self.spend(node.size)
        self.nodes.append(node)
        return len(self.nodes) - 1

    def plain(self, base: int, shape: Sequence[int]) -> Value:
        size = self.nodes[base].shape
        self.spend(3 * self.nodes[base].size)
        return Value(list(shape), base, np.zeros(size), np.ones(size), np.zeros(size))

    def node_of(self, value: Value) -> int:
        """The node that computes a value; made when it is first needed."""
        size = self.nodes[value.base].shape
        if value.bend.any():
            node: Node = Site([value.base], size, value.number, value.bend, value.slope, value.shift)
        elif (value.slope == 1).all() and not value.shift.any():
            return value.base
        else:
            node = Scale([value.base], size, value.slope, value.shift)
        plain = self.plain(self.add(node), value.shape)
        vars(value).update(vars(plain))
        return value.base

    def moved(self, value: Value, move: Callable[[np.ndarray], np.ndarray]) -> Value:
        """A value whose numbers are moved to other places; −1 among the moved positions stands for 0."""
        source = self.node_of(value)
        size = math.prod(value.shape)
        self.spend(4 * size)
        numbers = move(np.arange(size).reshape(value.shape))
        if numbers.shape[0] != 1:
            raise LingraftError("the batch dimension is changed")
        shape = self.inner_shape(numbers.shape)
        self.spend(4 * numbers.size)
        places = inner_places(tuple(value.shape[1:]))
        outer = inner(numbers[0]).reshape(-1)
        index = np.where(outer < 0, -1, places[np.maximum(outer, 0)])
        old = self.nodes[source].shape
        if old == shape and np.array_equal(index, np.arange(size)):
            return self.plain(source, numbers.shape)
        return self.plain(self.add(Gather([source], shape, old, index)), numbers.shape)

    def summed(self, parts: list[Value], signs: list[float]) -> Value:
        numbers = [self.node_of(part) for part in parts]
        return self.plain(self.add(Sum(numbers, self.nodes[numbers[0]].shape, signs)), parts[0].shape)

    def bent(self, x: Value, slope: float | Array) -> Value:
        """relu(z)·(1 − slope) + slope·z; one slope, or one for each value, in the order used here."""
        base = self.node_of(x)
        size = self.nodes[base].shape
        self.spend(3 * self.nodes[base].size)
        line = np.full(size, slope)
        if not exact_sum(np.full(1, 1.0), -line):
            raise LingraftError("a leaky ReLU or PReLU with a slope so small that 1 less it is not exact")
        self.activations += 1
        bend = 1 - line
        return Value(x.shape, base, bend, line, np.zeros(size), self.activations - 1)

    def largest(self, players: list[Value]) -> Value:
        """The maximum by a tournament: neighbours in the list are compared, round after round; an odd one waits."""
        while len(players) > 1:
            pairs = list(zip(players[0::2], players[1::2], strict=False))
            bends = [self.bent(self.summed([a, b], [1.0, -1.0]), 0.0) for a, b in pairs]
            winners = [self.summed([b, bend], [1.0, 1.0]) for (_, b), bend in zip(pairs, bends, strict=True)]
            players = winners + players[2 * len(winners) :]
        return players[0]
