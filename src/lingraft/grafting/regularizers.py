"""Regularizers of fine-tuning that make a network easier to verify; they can be combined.

Paper: Xiao et al., "Training for faster adversarial robustness verification via inducing ReLU stability", ICLR 2019,
whose three regularizers the grafting paper combines with grafting (Section "Combining with existing regularization").
"""

from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from lingraft.attack.ball import bounds
from lingraft.ball import Ball, Eps
from lingraft.errors import LingraftError
from lingraft.model.grafted_activation import GraftedActivation
from lingraft.model.sites import grafted_activations
from lingraft.training.differentiable.intervals import site_intervals
from lingraft.training.loss import Figures

#: name → what it is
REGULARIZERS = {
    "stability": "ReLU stability: push neurons that can take both signs to one of them",
    "l1": "the sum of |weights|",
    "prune": "small weights are set to 0 and stay 0",
}


@dataclass(frozen=True)
class ReluStability:
    """−tanh(1 + l·u) summed over the neurons that are not grafted, averaged over the images.

    l and u are interval bounds over the ball of radius ε. A neuron costs about 1 where l < 0 < u are far apart and
    −1 where it is stable.
    """

    eps: Ball | Eps

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Figures]:
        if not isinstance(model, fx.GraphModule):
            raise LingraftError("the stability regularizer needs the model that lingraft.graft gives.")
        grafted = grafted_activations(model)
        found = site_intervals(model, *bounds(images, self.eps))
        value = torch.zeros((), device=images.device)
        unstable, neurons = torch.zeros((), device=images.device), 0
        for name, (lower, upper) in found.items():
            keep = ~grafted[name].mask if name in grafted else torch.ones_like(lower[0], dtype=torch.bool)
            value = value - (torch.tanh(1 + lower * upper) * keep).sum()
            unstable += ((lower < 0) & (upper > 0) & keep).sum()
            neurons += keep.numel()
        return value / len(images), {"unstable": unstable.detach() / (neurons * len(images))}


@dataclass(frozen=True)
class WeightNorm:
    """The ℓ1 norm of the weights of all layers, biases and grafted lines excepted."""

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Figures]:
        value = torch.stack([weight.abs().sum() for weight in layer_weights(model).values()]).sum()
        return value, {"l1": value.detach()}


def prune_small_weights(model: nn.Module, threshold: float) -> int:
    """Set weights below `threshold` in magnitude to 0, in place, and keep them 0 while training; gives their number.

    Their gradient is cut off, so that an optimizer that starts now leaves them where they are.
    """
    if not threshold > 0:
        raise LingraftError(f"the threshold for small weights must be above 0, not {threshold}.")
    count = 0
    for weight in layer_weights(model).values():
        keep = weight.detach().abs() >= threshold
        with torch.no_grad():
            weight.mul_(keep)
        if weight.requires_grad:
            weight.register_hook(lambda gradient, keep=keep: gradient * keep)
        count += int((~keep).sum())
    return count


def layer_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weight matrices and kernels of `model` by name: no biases, no batch norm, no grafted lines."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, GraftedActivation):
            continue
        for key, parameter in module.named_parameters(recurse=False):
            if parameter.dim() > 1:
                found[f"{name}.{key}" if name else key] = parameter
    if not found:
        raise LingraftError("the model has no weights to regularize.")
    return found
