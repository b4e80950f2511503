"""What lingraft has to know of a torch operation that is no activation, in one record."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from torch import fx, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from lingraft.errors import LingraftError
from lingraft.model.activations.record import Activation
from lingraft.model.plain import renew

#: What an operation does with the values that it is given:
#: - same: gives them as they are;
#: - moves: gives some of them in other places, besides zeros or constants;
#: - averages: sums over sides of a map, or over dimensions, with weights that are fixed and not negative;
#: - weighs: sums with the weights that it is called with, which may be values of a matrix product, plus a bias;
#: - adds: the sum or the difference of two, or of one and a constant;
#: - multiplies: the product or quotient of two, or of one and a constant;
#: - chooses: the largest of each window;
#: - bends: a function of each value by itself, which is no activation: `bend` bounds it;
#: - powers: a power with a fixed exponent;
#: - softens: exponentials, each as a share of their sum.
Kind = Literal["same", "moves", "averages", "weighs", "adds", "multiplies", "chooses", "bends", "powers", "softens"]


@dataclass(frozen=True, eq=False)
class Operation:
    """An operation: what it computes, the torch calls that mean it, and what it is written with in ONNX.

    `compute` has the names and defaults of the arguments that are known, none by name only; a call with any other is
    refused. `layers`
    are classes of layers, exactly these, with what gives their arguments; None: their attributes of the same names.
    """

    name: str
    kind: Kind
    compute: Callable[..., Any]
    #: functions and names of tensor methods
    calls: tuple[Any, ...] = ()
    layers: Mapping[type[nn.Module], Callable[[Any], dict[str, Any]] | None] = field(default_factory=dict)
    #: what it is written with in ONNX, and what besides for unusual arguments
    onnx: tuple[str, ...] = ()
    rarely: tuple[str, ...] = ()
    #: what holds of some calls only
    note: str = ""
    #: how many dimensions the value must have, the batch included; None: any
    rank: int | None = None
    #: of an operation that bends, what bounds it
    bend: Activation | None = None

    @cached_property
    def signature(self) -> inspect.Signature:
        """Names and defaults of the arguments."""
        return inspect.signature(self.compute)

    @property
    def gives_new_memory(self) -> bool:
        """Whether the result never shares memory with what it is computed from."""
        return self.kind not in ("same", "moves")

    def settings(self, layer: nn.Module) -> dict[str, Any]:
        """The arguments of the call that a layer makes, besides its input."""
        renew(layer)
        given = self.layers[type_before_parametrizations(layer)]
        if given is not None:
            return given(layer)
        return {name: getattr(layer, name) for name in self.signature.parameters if hasattr(layer, name)}

    def bind(self, what: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        """The arguments of a call, with defaults filled in."""
        if "dim" in self.signature.parameters:  # NumPy's name for it, which torch takes as well
            kwargs = {"dim" if name == "axis" else name: value for name, value in kwargs.items()}
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise LingraftError(
                f"{what} is called with arguments that lingraft does not know ({error})."
                " Give plain ones, in their order."
            ) from error
        bound.apply_defaults()
        return bound

    def require_rank(self, what: str, shape: Sequence[int]) -> None:
        """Refuse a value of another rank, which torch takes for a single image without a batch."""
        if self.rank is not None and len(shape) != self.rank:
            raise LingraftError(
                f"{what} is called with arguments that lingraft does not know: a value with {len(shape)} dimensions"
                f" instead of {self.rank}, (N, C, …)."
            )


class Call(NamedTuple):
    """A call of an operation, as it stands in a graph: arguments may be nodes of it."""

    operation: Operation
    bound: inspect.BoundArguments

    def arguments(self, of: Callable[[fx.Node], Any]) -> tuple[Any, ...]:
        """The arguments in their order, with `of(node)` in place of every node of the graph."""
        args: Any = fx.map_arg(self.bound.args, of)
        return tuple(args)
