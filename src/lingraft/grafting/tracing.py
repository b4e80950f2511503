"""The graph of any module that torch.fx can trace, with errors that name the layer."""

from collections.abc import Callable
from typing import Any

from torch import fx, nn

from lingraft.errors import LingraftError
from lingraft.grafting.activation import GraftedActivation


class _Tracer(fx.Tracer):
    """Keeps grafted activations whole, and remembers the innermost module in which tracing failed."""

    failed_in: str | None = None

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, GraftedActivation) or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            if self.failed_in is None:
                self.failed_in = f"{self.path_of_module(m)} ({type(m).__name__})"
            raise


def trace(model: nn.Module) -> fx.GraphModule:
    """The graph of `model`, sharing its parameters; grafted activations are leaves of it.

    Raises a LingraftError that names the layer where the forward pass cannot be traced.
    """
    tracer = _Tracer()
    try:
        graph = tracer.trace(model)
    except Exception as error:
        where = tracer.failed_in or f"the forward pass of {type(model).__name__}"
        raise LingraftError(
            f"cannot trace {where}: {error}. Its forward must not branch or loop on tensor values or on shapes,"
            " and must take tensors only: move such code out of the model, or write it with torch operations."
        ) from error
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        raise LingraftError(
            f"{type(model).__name__} takes {len(inputs)} inputs ({', '.join(n.name for n in inputs)});"
            " a classifier takes one, the images. Wrap it in a module with one input."
        )
    return fx.GraphModule(model, graph, class_name=type(model).__name__)
