"""What lingraft has to know of an activation, in one record: all that depends on its kind is asked of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lingraft.errors import LingraftError

#: Where in an interval lines of smooth activations can be close together; between two of these they are mixed.
PLACES = (0.1, 0.5, 0.9)


class Lines(NamedTuple):
    """Lines below and above neurons with z ∈ [l, u], each tensor of the neurons' shape:

    lower_slope·z + lower_intercept ≤ act(z) ≤ upper_slope·z + upper_intercept on the whole interval.
    """

    lower_slope: Tensor
    lower_intercept: Tensor
    upper_slope: Tensor
    upper_intercept: Tensor


class Bend(NamedTuple):
    """Where a function made of lines bends: at gain·z + offset = 0, from slope `before` to `after`, by unit of that."""

    before: float | Tensor
    after: float | Tensor
    gain: float = 1.0
    offset: float = 0.0


class Pieces(NamedTuple):
    """A continuous function made of up to three lines: min(g(z), ceiling), where

    g(z) = slope·z + shift + (after − before)·relu(gain·z + offset). There need be no bend, or no ceiling. Numbers that
    are tensors have one value for each channel.

    It is written with ReLUs, the ceiling as c − relu(c − g): one inside of the other, and not as a sum of two, so that
    its bounds on an interval, found step by step, are those that it has.
    """

    slope: float | Tensor = 0.0
    shift: float = 0.0
    bend: Bend | None = None
    ceiling: float | None = None

    def at(self, z: Tensor) -> Tensor:
        """The function at z (N, C, …)."""
        result = per_channel(self.slope, z) * z + self.shift
        if self.bend is not None:
            before, after, gain, offset = self.bend
            result = result + (per_channel(after, z) - per_channel(before, z)) * torch.relu(gain * z + offset)
        return result if self.ceiling is None else self.ceiling - torch.relu(self.ceiling - result)

    @property
    def is_relu(self) -> bool:
        """Whether it is two lines that meet in the origin, so that neurons are on or off."""
        bends_at_0 = self.bend is not None and self.bend[2:] == (1.0, 0.0)
        return bends_at_0 and self.shift == 0 and self.ceiling is None


def per_channel(value: float | Tensor, z: Tensor) -> Tensor:
    """A number, or one for each channel, to broadcast over z (N, C, …)."""
    if not isinstance(value, Tensor):
        return torch.tensor(value, dtype=z.dtype, device=z.device)
    known = value.to(z)  # sums of slopes would be rounded in the weights' precision
    return known if known.numel() == 1 else known.view(-1, *(1,) * (z.dim() - 2))


@dataclass(frozen=True, eq=False)
class Activation:
    """An activation: what it computes, what bounds it, and what it is called in torch and in ONNX.

    Functions of an interval take its ends, tensors of the same shape; all of it is computed in float64 where something
    is proven. `register` checks a record before it is used.
    """

    name: str
    #: act(z), of the shape and type of z
    value: Callable[[Tensor], Tensor]
    #: lines below and above it on [l, u]; widened by more than rounding takes from them, unless they are exact
    lines: Callable[[Tensor, Tensor], Lines]
    #: the least vertical distance of two parallel lines with act between them on [l, u], ≥ 0: how far it is from linear
    gap: Callable[[Tensor, Tensor], Tensor]
    #: s ↦ a number that |act(z)| does not exceed for |z| ≤ s
    size: Callable[[float], float]
    #: slope and intercept that a grafted neuron starts from
    start: tuple[float, float]
    #: what the gap tends to on ever longer intervals; if that has no limit, a gap that counts as not linear at all
    rise: float = 1.0
    #: bounds of act on [l, u]; None if it never falls, so that they are its values at the ends
    interval: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    #: the lines of one that is made of lines, and so written with ReLUs; None: smooth
    pieces: Pieces | None = None
    #: of a smooth one, the same but close together at `PLACES`, a tensor that can be broadcast
    lines_at: Callable[[Tensor, Tensor, Tensor], Lines] | None = None
    #: constant but for jumps: where its bounds on an interval are the same number, so are its lines, exactly
    steps: bool = False
    #: torch calls that mean it: classes of layers, exactly these; functions and names of tensor methods
    modules: tuple[type[nn.Module], ...] = ()
    calls: tuple[Any, ...] = ()
    #: what these calls take after the tensor, in order and by name, with the values for which the record holds; tensors
    #: are weights, which a grafted site goes on training
    arguments: Mapping[str, Any] = field(default_factory=dict)
    #: the record for other values of the arguments; None if there is none
    family: "Callable[..., Activation] | None" = None
    #: a layer with these arguments, if the first of `modules` does not take them
    build: Callable[..., nn.Module] | None = None
    #: the ONNX operation, and which of its attributes stand for arguments; None if ONNX does not have it
    onnx: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> str:
        """The module that its functions come from, which a process that does not know it has to import."""
        functions = (self.lines, self.gap, self.size, self.interval, self.value, self.lines_at)
        homes = [str(getattr(function, "__module__", "__main__")) for function in functions if function is not None]
        return next((home for home in homes if home.partition(".")[0] not in ("lingraft", "torch")), homes[0])

    @property
    def at_zero(self) -> float:
        """act(0)."""
        if self.pieces is not None and self.pieces.is_relu:
            return 0.0
        return float(self.value(torch.zeros((), dtype=torch.float64)))

    def between(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds of act on [lower, upper]."""
        if self.interval is not None:
            return self.interval(lower, upper)
        return self.value(lower), self.value(upper)

    def called_with(self, arguments: Mapping[str, Any]) -> "Activation":
        """The record for a call with these arguments; those that are left out are as in this one."""
        wanted = {**self.arguments, **arguments}
        if all(_same(value, self.arguments.get(name)) for name, value in wanted.items()):
            return self
        if self.family is None:
            given, known = (", ".join(f"{k}={v}" for k, v in a.items()) for a in (arguments, self.arguments))
            raise LingraftError(f"{self.name} with {given} is not supported: it is known for {known} only.")
        return self.family(**wanted)

    def module(self) -> nn.Module:
        """A new layer that computes it."""
        return (self.build or self.modules[0])(**self.arguments)

    def __deepcopy__(self, memo: Any) -> "Activation":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        from lingraft.model.activations import restored  # which knows all records, and so imports this

        return restored, (self.name, self.home, dict(self.arguments))


def _same(one: Any, other: Any) -> bool:
    """Whether two arguments are equal; of tensors, which may change, whether they are the same one."""
    return one is other if isinstance(one, Tensor) or isinstance(other, Tensor) else bool(one == other)
