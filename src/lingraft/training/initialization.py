"""Weights to start training from."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

from torch import fx, nn

from lingraft.model.activations import Activation, of_module
from lingraft.names import lookup
from lingraft.training.differentiable import graph_of

Model = TypeVar("Model", bound=nn.Module)


def draw(model: Model, name: str) -> Model:
    """Draw the weights anew, in place, by the named way of INITIALIZATIONS."""
    return lookup("initialization", name, INITIALIZATIONS)[0](model)


def keep(model: Model) -> Model:
    """Leave the weights as torch drew them: uniform, with √6 times less deviation than He's, as the authors start."""
    return model


def initialize(model: Model) -> Model:
    """Draw the weights of a ReLU network anew from torch's random state, in place: He initialization, biases 0.

    Paper: He et al., "Delving deep into rectifiers", ICCV 2015. torch's own default shrinks the signal from layer to
    layer; without batch norm, fast adversarial training then stays for hundreds of steps where every prediction is
    the same. Networks with other activations keep the weights they have.
    """
    if any(_is_smooth(of_module(module)) for module in model.modules()):
        return model
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return model


def initialize_for_intervals(model: Model) -> Model:
    """Draw the weights anew so that interval bounds keep their width from layer to layer, in place; biases 0.

    Paper: Shi et al., "Fast certified robust training with short warmup", NeurIPS 2021, Section 4.1. With n inputs a
    layer multiplies widths by n·E|w| and a ReLU halves them, so a normal distribution with deviation √(2π)/n keeps
    them. After the sum of a shortcut, which adds two widths, it is half of that. The last layer, whose bounds no other
    layer gets, is initialized as usual. Networks with smooth activations keep the weights they have.
    """
    initialize(model)
    graph = graph_of(model)
    if any(_is_smooth(site.activation) for site in graph.sites.values()):
        return model
    for node in graph.module.graph.nodes:
        module = graph.module.get_submodule(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear) and node is not graph.last:
            inputs = module.weight[0].numel()
            nn.init.normal_(module.weight, std=math.sqrt(2 * math.pi) / inputs / _widths_added(node))
    return model


def _is_smooth(activation: Activation | None) -> bool:
    return activation is not None and activation.pieces is None


def _widths_added(layer: fx.Node) -> int:
    """2 if the layer reads an activation of a sum, else 1."""
    activation = layer.all_input_nodes[0]
    before = activation.all_input_nodes[0] if activation.all_input_nodes else activation
    return 2 if getattr(before.target, "__name__", before.target) in ("add", "iadd", "add_") else 1


#: name → how the weights are drawn, and in words
INITIALIZATIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "he": (initialize, "He et al. 2015"),
    "torch": (keep, "torch's default, as the paper's authors start"),
    "intervals": (initialize_for_intervals, "interval bounds keep their width, Shi et al. 2021"),
}
