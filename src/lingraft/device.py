"""Which device to compute on."""

import torch

from lingraft.errors import LingraftError


def resolve_device(name: str = "auto") -> torch.device:
    """`auto` is CUDA where there is one, else the CPU; anything else is a torch device name that must work here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise LingraftError(f"device {name!r} is not available here. Use --device cpu or auto.") from error
    return device
