"""The graph of a model that bounds are propagated through."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn

from lingraft.errors import LingraftError
from lingraft.model.sites import Site, sites_of
from lingraft.model.tracing import trace

#: mean and variance of every channel, for the calls of batch norm that normalize by the batch
Statistics = Mapping[fx.Node, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class BoundedGraph:
    """What torch.fx sees of a model, sharing its weights, and which of its nodes are sites."""

    module: fx.GraphModule
    sites: Mapping[fx.Node, Site]
    #: the call that gives the logits
    last: fx.Node

    @property
    def last_layer(self) -> nn.Linear | None:
        """The linear layer that gives the logits, if one does."""
        module = self.module.get_submodule(str(self.last.target)) if self.last.op == "call_module" else None
        plain = type(module) is nn.Linear and not module._forward_pre_hooks  # whose weight is what it is
        return module if plain and len(self.last.users) == 1 else None  # type: ignore[return-value]

    @property
    def normalizes_by_batch(self) -> bool:
        """Whether there is batch norm in training mode."""
        return any(isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training for m in self.module.modules())


_KNOWN: WeakKeyDictionary[nn.Module, BoundedGraph] = WeakKeyDictionary()


def graph_of(model: nn.Module) -> BoundedGraph:
    """The graph of `model`, traced once. Weights, masks and modes may change afterwards; layers may not."""
    if model not in _KNOWN:
        traced = trace(model)
        (output,) = (node for node in traced.graph.nodes if node.op == "output")
        last = output.args[0]
        if not isinstance(last, fx.Node):
            raise LingraftError(f"{type(model).__name__} must give one tensor, the logits, to be bounded.")
        _KNOWN[model] = BoundedGraph(traced, sites_of(traced), last)
    return _KNOWN[model]


def clean_pass(graph: BoundedGraph, images: Tensor) -> tuple[Tensor, Statistics]:
    """The logits (N, classes) of `images`, and what batch norm in training mode normalized them by.

    As any forward pass in training mode it updates the running statistics of batch norm.
    """
    watch = _Watch(graph.module)
    return cast(Tensor, watch.run(images)), watch.found


class _Watch(fx.Interpreter):
    """Runs the model and takes the statistics of the batch where batch norm does."""

    def __init__(self, module: fx.GraphModule):
        super().__init__(module)
        self.found: dict[fx.Node, tuple[Tensor, Tensor]] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "call_module":
            module = self.fetch_attr(str(n.target))
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
                (x, *_), _ = self.fetch_args_kwargs_from_env(n)
                axes = [axis for axis in range(x.dim()) if axis != 1]
                variance, mean = torch.var_mean(x, axes, correction=0)
                self.found[n] = mean, variance
        return super().run_node(n)
