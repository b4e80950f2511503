"""Operations that only move values, done to numbered positions, which shows where each goes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from lingraft.errors import LingraftError
from lingraft.model.operations import KNOWN
from lingraft.solver.lowering.building import HANDLERS, Building, handles


@handles("identity")
def _identity(at: Building, call: fx.Node, x: fx.Node) -> int:
    return at.position[x]


@handles("dropout")
def _dropout(at: Building, call: fx.Node, x: fx.Node, p: float, training: bool, inplace: bool) -> int:
    if training:
        raise LingraftError(f"{at.title(call)} drops values also in eval mode. Pass training=self.training.")
    return at.position[x]


def _moving(name: str) -> Callable[..., Any]:
    """The handler of an operation that moves values."""
    compute = KNOWN[name].compute

    def move(at: Building, call: fx.Node, *args: Any) -> Any:
        """Zeros in place of all values give the constants; one value numbered at a time shows where it goes."""
        sources = list(dict.fromkeys(_nodes(args)))
        numbers = {x: at.numbered(at.position[x], at.shape(x))[None] for x in sources}

        def computed(chosen: fx.Node | None) -> list[Tensor]:
            values = {x: n if x is chosen else torch.zeros_like(n) for x, n in numbers.items()}
            plain: Any = fx.map_arg(args, values.__getitem__)
            given: Any = fx.node.map_aggregate(plain, _double)
            result = compute(*given)
            return [result] if isinstance(result, Tensor) else list(result)

        constants = computed(None)
        moved = {x: computed(x) for x in sources}
        positions = []
        for i, constant in enumerate(constants):
            parts = [at.gather(call.name, at.position[x], (moved[x][i] - constant)[0]) for x in sources]
            position = parts[0] if len(parts) == 1 else at.sum(call.name, parts, [1.0] * len(parts))
            if bool(constant.any()):
                shift = at.inner_constant(constant, tuple(constant.shape[1:]))
                position = at.scale(call.name, position, torch.ones_like(shift), shift)
            positions.append(position)
        return positions[0] if isinstance(at.values[call], Tensor) else positions

    return move


def _nodes(arguments: Any) -> list[fx.Node]:
    found: list[fx.Node] = []

    def note(node: fx.Node) -> fx.Node:
        found.append(node)
        return node

    fx.map_arg(arguments, note)
    return found


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


for _name, _record in KNOWN.items():
    if _record.kind == "moves":
        handles(_name)(_moving(_name))
_places, _around = HANDLERS["index"], HANDLERS["padding"]


@handles("index")
def _index(at: Building, call: fx.Node, x: fx.Node, index: Any) -> Any:
    """One of several tensors, or places of one tensor."""
    return at.parts[x][index] if x in at.parts else _places(at, call, x, index)


@handles("padding")
def _pad(at: Building, call: fx.Node, x: fx.Node, pad: Any, mode: str, value: float | None) -> int:
    """Zero padding is remembered: a convolution makes it its own."""
    value = None if value is None else at.number(value)
    position: int = _around(at, call, x, pad, mode, value)
    if mode == "constant" and not value and len(at.shape(x)) == 3 and len(pad) == 4 and min(pad) >= 0:
        left, right, top, bottom = pad
        at.padded[position] = at.position[x], (top, left, bottom, right)
    return position
