"""Attacks by name: those of lingraft that make one image of another, and those that a user registers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.attack.fgsm import fgsm
from lingraft.errors import LingraftError

#: (model, images (N, *shape), labels (N,), ε, generator on their device) → images of the same shape, in the range of
#: values of the data ([0, 1] for pixels) and within ε of the given ones. ε is a number or, where a user gives a tensor,
#: one that broadcasts to the images.
AttackFunction = Callable[[nn.Module, Tensor, Tensor, Any, torch.Generator], Tensor]

#: fgsm is there for its name; `evaluation.py` gives it the ball itself.
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
