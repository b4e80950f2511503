"""Attacks by name: those of lingraft that make one image of another, and those that a user registers."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lingraft.attack.fgsm import fgsm
from lingraft.errors import LingraftError

#: (model, images (N, C, H, W) in [0, 1], labels (N,), ε, generator on their device) → images of the same shape,
#: in [0, 1] and within ε of the given ones
AttackFunction = Callable[[nn.Module, Tensor, Tensor, float, torch.Generator], Tensor]

FUNCTIONS: dict[str, AttackFunction] = {
    "fgsm": lambda model, images, labels, eps, generator: fgsm(model, images, labels, eps)
}


def register(name: str) -> Callable[[AttackFunction], AttackFunction]:
    """A decorator: from now on `lingraft.evaluate(…, attack=name)` uses this function, once for each restart.

    Registering a name again replaces its function; the names of lingraft's own attacks are taken.
    """
    if name in ("pgd", "fgsm"):
        raise LingraftError(f"the attack {name!r} is lingraft's own. Register yours under another name.")

    def keep(function: AttackFunction) -> AttackFunction:
        FUNCTIONS[name] = function
        return function

    return keep
