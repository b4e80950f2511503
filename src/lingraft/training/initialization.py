"""Weights to start training from."""

from typing import TypeVar

from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def initialize(model: Model) -> Model:
    """Draw the weights of a ReLU network anew from torch's random state, in place: He initialization, biases 0.

    Paper: He et al., "Delving deep into rectifiers", ICCV 2015. torch's own default shrinks the signal from layer to
    layer; without batch norm, fast adversarial training then stays for hundreds of steps where every prediction is
    the same. Networks with other activations keep the weights they have.
    """
    if any(isinstance(module, nn.Sigmoid | nn.Tanh) for module in model.modules()):
        return model
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return model
