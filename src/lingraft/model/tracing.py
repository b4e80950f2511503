"""The graph of any module that torch.fx can trace, with errors that name the layer."""

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.proxy import Attribute
from torch.nn.utils.parametrize import type_before_parametrizations

from lingraft.errors import LingraftError
from lingraft.model.activations import of_module
from lingraft.model.composed import COMPOSED, COMPOSED_LAYERS
from lingraft.model.grafted_activation import GraftedActivation
from lingraft.model.in_place import MARK, NUMBERS, is_number, read_results
from lingraft.model.plain import plain
from lingraft.model.unseen import refuse_unseen

#: What the operators that change a tensor in place (h += y) compute.
_OPERATORS = {
    "__iadd__": operator.add, "__isub__": operator.sub, "__imul__": operator.mul, "__itruediv__": operator.truediv,
    "__ifloordiv__": operator.floordiv, "__imod__": operator.mod, "__ipow__": operator.pow, "__iand__": operator.and_,
    "__ior__": operator.or_, "__ixor__": operator.xor, "__ilshift__": operator.lshift, "__irshift__": operator.rshift,
}  # fmt: skip

#: Functions that torch also has for a number before a tensor. It takes what says that it is a tensor for a number then,
#: to look into, and crashes.
_NUMBER_FIRST = (
    "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "float_power", "pow",
    "remainder", "where", "xlogy",
)  # fmt: skip


class _InPlace(fx.Proxy):
    """Records operators in place as what they are: torch.fx takes h += y for h = h + y, and forgets other names of h.

    They are recorded as the plain operators, with a mark. It says that it is a tensor, so that a model that asks
    (isinstance, torch.is_tensor) goes the way that it goes with images.
    """

    __class__ = property(lambda self: Tensor)
    _is_param = _is_buffer = False  # what torch asks tensors that a module is given

    def __getattr__(self, k: str) -> Attribute:
        return Attribute(self, k) if k in NUMBERS else _Attribute(self, k)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(Tensor, name):
            raise LingraftError(f"it assigns to the attribute {name!r} of a tensor. Make a new tensor instead.")
        super().__setattr__(name, value)


class _Attribute(_InPlace, Attribute):
    """An attribute of a traced value."""


def _record_in_place(name: str, function: Callable[..., Any]) -> None:
    def in_place(self: fx.Proxy, other: Any) -> Any:
        result = self.tracer.create_proxy("call_function", function, (self, other), {})
        result.node.meta[MARK] = True
        return result

    setattr(_InPlace, name, in_place)


for _name, _function in _OPERATORS.items():
    _record_in_place(_name, _function)


class _Tracer(fx.Tracer):
    """Keeps torch's own layers and grafted activations whole, and remembers the innermost module that failed."""

    failed_in: str | None = None

    def __init__(self, buffers: bool = False) -> None:
        super().__init__()
        self.proxy_buffer_attributes = buffers
        self.asked_for_values = False
        self.autocast = _autocast()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        kind = type_before_parametrizations(m)
        own = kind.__module__.startswith("torch.nn.") and not isinstance(m, nn.Sequential)
        return own or kind is GraftedActivation or of_module(m) is not None

    def proxy(self, node: fx.Node) -> fx.Proxy:
        # torch's own tensors do not survive a size that says that it is a tensor
        return fx.Proxy(node, self) if is_number(node) else _InPlace(node, self)

    def create_proxy(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> Any:
        if kind == "call_function" and target in COMPOSED:
            positional, named = args[:2]
            return COMPOSED[target](*positional, **named)
        return super().create_proxy(kind, target, *args, **kwargs)

    def create_arg(self, a: Any) -> Any:
        return a.node if isinstance(a, fx.Proxy) else super().create_arg(a)

    def to_bool(self, obj: fx.Proxy) -> bool:
        self.asked_for_values = True  # the model may catch the error and go another way than with real values
        return super().to_bool(obj)

    def create_node(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        if _autocast() != self.autocast:
            raise LingraftError("it uses torch.autocast, which its graph does not show. Take that out of forward.")
        if kind == "call_function":
            _require_own_name(target)
        return super().create_node(kind, target, *args, **kwargs)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        try:
            kind = type_before_parametrizations(m)
            if kind in COMPOSED_LAYERS and not m._forward_pre_hooks:  # which may compute the weights
                return COMPOSED_LAYERS[kind](m, *args, **kwargs)
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            if self.failed_in is None:
                self.failed_in = f"{self.path_of_module(m)} ({type(m).__name__})"
            raise


def trace(model: nn.Module) -> fx.GraphModule:
    """The graph of `model`, sharing its parameters; grafted activations are leaves of it.

    What the model changes in place is read from the result of the change. Raises a LingraftError that names the layer
    where the forward pass cannot be traced, or does what its graph would not show.
    """
    model = plain(model)
    refuse_unseen(model)
    try:
        graph = _graph(model, _Tracer())
    except LingraftError as error:
        try:  # buffers as they are do not take sizes of the image, as in buffer.expand(x.shape[0], -1); traced ones do
            graph = _graph(model, _Tracer(buffers=True))
        except LingraftError:
            raise error from error.__cause__
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        raise LingraftError(
            f"{type(model).__name__} takes {len(inputs)} inputs ({', '.join(n.name for n in inputs)});"
            " a classifier takes one, the images. Wrap it in a module whose forward takes the images and"
            " calls it with the others, kept as buffers; or join them to one tensor and split that in forward."
        )
    read_results(graph, model)
    return fx.GraphModule(model, graph, class_name=type(model).__name__)


def _graph(model: nn.Module, tracer: _Tracer) -> fx.Graph:
    try:
        with _unchanged(model), _recorded_by(tracer):
            graph = tracer.trace(model)
        if tracer.asked_for_values:
            raise fx.proxy.TraceError("it asks for the value of a tensor")
        return graph
    except Exception as error:
        where = tracer.failed_in or f"the forward pass of {type(model).__name__}"
        if isinstance(error, LingraftError):
            raise LingraftError(f"cannot trace {where}: {error}") from error
        raise LingraftError(
            f"cannot trace {where}: {error}. Its forward must not branch or loop on tensor values or on shapes,"
            " and must take tensors only: move such code out of the model, or write it with torch operations."
        ) from error


@contextmanager
def _recorded_by(tracer: _Tracer) -> Iterator[None]:
    """Let the tracer record calls of `_NUMBER_FIRST` before torch sees them."""
    functions = {name: getattr(torch, name) for name in _NUMBER_FIRST}

    def recording(function: Callable[..., Any]) -> Callable[..., Any]:
        def record(*args: Any, **kwargs: Any) -> Any:
            traced = any(isinstance(value, fx.Proxy) for value in (*args, *kwargs.values()))
            return tracer.create_proxy("call_function", function, args, kwargs) if traced else function(*args, **kwargs)

        return record

    try:
        for name, function in functions.items():
            setattr(torch, name, recording(function))
        yield
    finally:
        for name, function in functions.items():
            setattr(torch, name, function)


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Refuse a model that changes its numbers, such as a count of calls, or puts other tensors into its buffers.

    Its graph would do neither. The buffers are put back: they would hold what tracing passes around for tensors.
    """
    before = [(name, module, _numbers(module), dict(module._buffers)) for name, module in model.named_modules()]
    changed: list[str] = []
    try:
        yield
    finally:
        for path, module, numbers, buffers in before:
            now = {**numbers, **_numbers(module)}
            names = [name for name in numbers if now[name] != numbers[name]]
            names += [name for name in buffers if module._buffers[name] is not buffers[name]]
            changed += [f"{path}.{name}" if path else name for name in names]
            module._buffers.update(buffers)
    if changed:
        raise LingraftError(f"it changes its own {changed[0]!r} whenever it is called. Take that out of forward.")


def _numbers(module: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if isinstance(value, bool | int | float)}


def _autocast() -> tuple[bool, ...]:
    return tuple(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))


def _require_own_name(function: Any) -> None:
    """Refuse a function of the user's own (torch.fx.wrap) that has the name of one of torch's, by which it is known."""
    name, home = (str(getattr(function, key, "")) for key in ("__name__", "__module__"))
    own = home.partition(".")[0] not in ("torch", "_operator", "math", "builtins")
    if own and any(hasattr(place, name) for place in (torch, F, Tensor, operator)):
        raise LingraftError(
            f"it calls a function {name!r} that is not torch's. Give it another name, or do not wrap it."
        )
