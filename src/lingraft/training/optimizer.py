"""Optimizers by name, and the part of their state that a checkpoint has to keep."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.names import lookup

#: name → what it is
OPTIMIZERS = {
    "sgd": "stochastic gradient descent with momentum",
    "adam": "Adam, whose steps do not depend on the scale of the loss",
}

#: part of a checkpoint → key of torch's state of one parameter
_PARTS = {
    "sgd": {"momentum": "momentum_buffer"},
    "adam": {"step": "step", "mean": "exp_avg", "square": "exp_avg_sq"},
}
STATE_PARTS = tuple(part for parts in _PARTS.values() for part in parts)


def make_optimizer(
    name: str, groups: Sequence[Mapping[str, Any]], momentum: float, device: torch.device
) -> torch.optim.Optimizer:
    """The named optimizer over parameter groups {"params": …, "lr": …, "weight_decay": …}; momentum is that of SGD."""
    lookup("optimizer", name, OPTIMIZERS)
    own = [dict(group) for group in groups]
    fused = device.type in ("cpu", "cuda")
    if name == "adam":
        return torch.optim.Adam(own, fused=fused)
    return torch.optim.SGD(own, momentum=momentum, fused=fused)


def _parts(optimizer: torch.optim.Optimizer) -> dict[str, str]:
    return _PARTS["adam" if isinstance(optimizer, torch.optim.Adam) else "sgd"]


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Tensor]]:
    """What the next step depends on: part → name of the parameter → tensor."""
    states = {name: optimizer.state[parameter] for name, parameter in model.named_parameters()}
    return {
        part: {name: state[key] for name, state in states.items() if key in state}
        for part, key in _parts(optimizer).items()
    }


def restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Put back what `optimizer_state` gave."""
    for part, key in _parts(optimizer).items():
        for name, parameter in model.named_parameters():
            if name not in state.get(part, {}):
                continue
            value = state[part][name]
            if part == "step":
                kept = value.to(parameter.device, copy=True)
            else:
                # laid out in memory like the parameter, as the optimizer made it: the same rounding from here on
                kept = torch.empty_like(parameter).detach().copy_(value)
            optimizer.state[parameter][key] = kept
