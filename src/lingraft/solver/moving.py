"""The part of a network that moves where only some of its inputs do, as a network of its own.

Properties with thousands of boxes often fix most inputs in each of them. A value that depends on fixed inputs alone is
a number for each box, known once and for all but for rounding; here it becomes an input of its own, between its two
bounds, wherever something that moves needs it. So nothing is computed again for every part of a box but what differs.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from lingraft.solver.intervals import counting, through_linear, through_site
from lingraft.solver.network import Network
from lingraft.solver.nodes import Convolution, Dense, Gather, Input, Node, Product, Scale, Site, Sum, sources
from lingraft.solver.products import through_product


@dataclass
class MovingPart:
    """`network` has the outputs of the whole one; its input i is value `values[i]` of node `nodes[i]`.

    For every point of a box it computes them exactly, given the values that these nodes have there. Nodes are those of
    the whole and behind them the `sums`, of what does not move alone. The first inputs are those of the whole that
    move.
    """

    network: Network
    nodes: Tensor
    values: Tensor
    sums: list[Node]

    def boxes(self, whole: Network, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds (B, n') of its inputs on boxes of the whole (B, n), flat in the inner order, float64."""
        ends = torch.empty(2, len(lower), len(self.nodes), dtype=lower.dtype, device=lower.device)
        known: dict[int, tuple[Tensor, Tensor]] = {}
        nodes = [*whole.nodes, *self.sums]
        for i in self._needed(nodes):
            node = nodes[i]
            inputs = [known[j] for j in sources(nodes, node)]
            if isinstance(node, Input):
                known[i] = lower.view(-1, *node.shape), upper.view(-1, *node.shape)
            elif isinstance(node, Site):
                known[i] = through_site(node, *inputs[0])
            elif isinstance(node, Product):
                known[i] = through_product(inputs[0], inputs[1], inputs[2:])
            else:
                known[i] = through_linear(node, inputs)
            here = (self.nodes == i).nonzero().flatten()
            for side, end in enumerate(known[i]):
                ends[side][:, here] = end.flatten(1)[:, self.values[here]]
        return ends[0], ends[1]

    def _needed(self, nodes: list[Node]) -> list[int]:
        """The positions of the nodes that its inputs are values of, and of all that these are made of."""
        needed = set(self.nodes.tolist())
        for i in range(len(nodes) - 1, -1, -1):
            if i in needed:
                needed.update(sources(nodes, nodes[i]))
        return sorted(needed)


def moving_part(network: Network, moving: Tensor) -> MovingPart:
    """Of a network whose inputs move where `moving` (n,), flat in the inner order, is true."""
    return _Builder(network, moving).build()


@dataclass
class _Builder:
    whole: Network
    moving: Tensor
    #: the nodes so far; where each node of the whole is among them, and which of its values (sorted) it has there
    nodes: list[Node] = field(default_factory=list)
    place: dict[int, int] = field(default_factory=dict)
    kept: dict[int, Tensor] = field(default_factory=dict)
    #: of every value that is an input, (node, value); the nodes that read the input; and see `MovingPart`
    inputs: dict[tuple[int, int], int] = field(default_factory=dict)
    readers: list[Gather] = field(default_factory=list)
    sums: list[Node] = field(default_factory=list)

    def build(self) -> MovingPart:
        whole, device = self.whole, self.moving.device
        masks = self._masks()
        for value in masks[0].nonzero().flatten().tolist():
            self.inputs[0, value] = len(self.inputs)
        source = Input(whole.nodes[0].name, (0,), [])
        self.nodes.append(source)
        self._keep(0, 0, masks[0].nonzero().flatten())
        for i, node in enumerate(whole.nodes[1:], start=1):
            if bool(masks[i].any()):
                self._add(i, node, masks[i].nonzero().flatten())
        last = len(whole.nodes) - 1
        every = torch.arange(whole.nodes[last].size, device=device)
        if last not in self.kept or len(self.kept[last]) < len(every):
            self._assembled(last, every, whole.nodes[last].shape)
        source.shape, source.known = (len(self.inputs),), len(self.inputs) - int(masks[0].sum())
        for reader in self.readers:
            reader.source = source.shape
        pairs = torch.tensor(list(self.inputs), device=device)
        return MovingPart(Network(self.nodes, source.shape), pairs[:, 0], pairs[:, 1], self.sums)

    def _masks(self) -> list[Tensor]:
        """Of every node, which of its values (size,) may move."""
        nodes = self.whole.nodes
        #: the values of what a product is written with are there or not there together
        alike = {j: i for i, node in enumerate(nodes) if isinstance(node, Product) for j in _written_with(nodes, node)}
        found: list[Tensor] = []
        for i, node in enumerate(nodes):
            if isinstance(node, Input):
                found.append(self.moving.flatten())
                continue
            inputs = [found[j].view(1, *nodes[j].shape) for j in node.inputs]
            if isinstance(node, Site):
                moves = inputs[0]
            elif isinstance(node, Convolution) and bool(torch.stack([m.any() for m in inputs]).any()):
                moves = self._positions(node, inputs[0])
            else:
                moves = counting(node).spread(*[m.double() for m in inputs]) > 0
            found.append(moves.flatten())
            if i in alike and isinstance(node, Scale):
                # either factor moves the product; the factors are before both of their scales
                product = nodes[alike[i]]
                assert isinstance(product, Product)
                for factor in (nodes[j].inputs[0] for j in product.factors(nodes)):
                    found[i] = found[i] | found[factor]
        return found

    def _positions(self, node: Convolution, moves: Tensor) -> Tensor:
        """All channels of the positions where something moves, if each position is by itself; else everything."""
        if not _by_position(node):
            return torch.ones(node.shape, dtype=torch.bool, device=moves.device)
        return moves.any(3, keepdim=True).expand(1, *node.shape)

    def _add(self, i: int, node: Node, kept: Tensor) -> None:
        """Append the values `kept` (flat) of a node of the whole."""
        match node:
            case Gather():
                self._keep(i, self._assembled(node.inputs[0], node.index[kept], (len(kept),)), kept)
            case Dense():
                self._keep(i, self._add_dense(node, kept), kept)
            case Convolution() if _by_position(node):
                self._keep(i, self._flat(self._add_positions(node, kept)), kept)
            case Convolution():
                (j,) = node.inputs
                every = torch.arange(self.whole.nodes[j].size, device=kept.device)
                before = self._assembled(j, every, node.source)
                self._keep(i, self._flat(self._append(replace(node, inputs=[before]))), kept)
            case Sum() | Scale() | Site():
                parts = [self._assembled(j, kept, (len(kept),)) for j in node.inputs]
                new = replace(node, shape=(len(kept),), inputs=parts)
                for name in ("weight", "bias", "grafted", "slope", "intercept"):
                    if hasattr(node, name):
                        whole = torch.broadcast_to(getattr(node, name), node.shape)
                        setattr(new, name, whole.reshape(-1)[kept])
                self._keep(i, self._append(new), kept)
            case _:
                raise AssertionError(f"it is not known what of {type(node).__name__} moves")

    def _add_dense(self, node: Dense, kept: Tensor) -> int:
        """What moves, times its weights, plus what does not: each value, or what they add up to, if that is less."""
        (j,) = node.inputs
        used = (node.weight[kept] != 0).any(0).nonzero().flatten()
        moves = used[torch.isin(used, self.kept[j])]
        alone = len(used) - len(moves) > len(kept)
        read = moves if alone else used
        before = self._assembled(j, read, (len(read),))
        shape, bias = (len(kept),), node.bias[kept]
        weight = node.weight[kept][:, read]
        if not alone:
            return self._append(replace(node, shape=shape, inputs=[before], weight=weight, bias=bias))
        still = node.weight.clone()
        still[:, moves] = 0.0
        rest = self._sum(replace(node, weight=still), kept, shape)
        moved = self._append(replace(node, shape=shape, inputs=[before], weight=weight, bias=torch.zeros_like(bias)))
        return self._append(Sum(node.name, shape, [moved, rest], [1.0, 1.0]))

    def _add_positions(self, node: Convolution, kept: Tensor) -> int:
        """The same at every position of a map that has something that moves, all channels of it."""
        (j,) = node.inputs
        count, outputs = node.source[2], node.shape[2]
        places = (kept // outputs).unique()
        channels = (self.kept[j] % count).unique()
        alone = count - len(channels) > outputs
        read = channels if alone else torch.arange(count, device=kept.device)
        source, shape = (len(places), 1, len(read)), (len(places), 1, outputs)
        before = self._assembled(j, (places[:, None] * count + read).flatten(), source)
        new = replace(node, shape=shape, inputs=[before], source=source, matrix=node.matrix[:, read])
        if not alone:
            return self._append(new)
        still = node.matrix.clone()
        still[:, channels] = 0.0
        rest = self._sum(replace(node, matrix=still), kept, shape)
        new.bias = torch.zeros_like(node.bias)
        return self._append(Sum(node.name, shape, [self._append(new), rest], [1.0, 1.0]))

    def _sum(self, node: Node, kept: Tensor, shape: tuple[int, ...]) -> int:
        """An input for each of the values `kept` of a node that reads only what does not move."""
        number = len(self.whole.nodes) + len(self.sums)
        self.sums.append(node)
        return self._read([(number, int(value)) for value in kept], node.name, shape)

    def _flat(self, position: int) -> int:
        """The values of a node as a vector, which is how they are kept."""
        node = self.nodes[position]
        if len(node.shape) == 1:
            return position
        index = torch.arange(node.size, device=self.moving.device)
        return self._append(Gather(node.name, (node.size,), [position], node.shape, index))

    def _assembled(self, j: int, wanted: Tensor, shape: tuple[int, ...]) -> int:
        """The position of a node with some values of node `j` of the whole: those that move, and inputs for others."""
        if j in self.kept and torch.equal(self.kept[j], wanted) and self.nodes[self.place[j]].shape == shape:
            return self.place[j]
        name, kept = self.whole.nodes[j].name, self.kept.get(j, wanted[:0])
        index = torch.full_like(wanted, -1)
        places = []
        if len(kept):
            near = torch.searchsorted(kept, wanted).clamp(max=len(kept) - 1)
            index = torch.where(kept[near] == wanted, near, -1)
        if bool((index >= 0).any()):
            mover = Gather(name, shape, [self.place[j]], self.nodes[self.place[j]].shape, index)
            places.append(self._append(mover))
            if not self.place[j]:
                self.readers.append(mover)
        if bool((index < 0).any()) or not places:
            pairs = zip(wanted.tolist(), index.tolist(), strict=True)
            values = [self._origin(j, value) if at < 0 else None for value, at in pairs]
            if any(value is not None for value in values) or not places:
                places.append(self._read(values, name, shape))
        return places[0] if len(places) == 1 else self._append(Sum(name, shape, places, [1.0] * len(places)))

    def _origin(self, j: int, value: int) -> tuple[int, int] | None:
        """Where a value that does not move was before it was moved around; None for a 0."""
        while isinstance(node := self.whole.nodes[j], Gather):
            j, value = node.inputs[0], int(node.index[value])
            if value < 0:
                return None
        return j, value

    def _read(self, values: list[tuple[int, int] | None], name: str, shape: tuple[int, ...]) -> int:
        """A node with these values, (node, value) each, from the input; 0 for None."""
        numbers = [-1 if value is None else self.inputs.setdefault(value, len(self.inputs)) for value in values]
        index = torch.tensor(numbers, dtype=torch.int64, device=self.moving.device)
        reader = Gather(name, shape, [0], (0,), index)
        self.readers.append(reader)
        return self._append(reader)

    def _append(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _keep(self, i: int, position: int, kept: Tensor) -> None:
        self.place[i], self.kept[i] = position, kept


def _by_position(node: Convolution) -> bool:
    return node.kernel == (1, 1) and node.stride == (1, 1) and not any(node.padding)


def _written_with(nodes: list[Node], product: Product) -> list[int]:
    """The four scales of a product."""
    return [*product.factors(nodes), *product.inputs[2:]]
