"""Which device to compute on, and with how many threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from lingraft.errors import LingraftError

#: Types of numbers with fewer digits than float32.
_COARSE = (torch.float16, torch.bfloat16)


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


def device_of(model: nn.Module) -> torch.device:
    """Where the model is; a LingraftError if it is none."""
    if not isinstance(model, nn.Module):
        raise LingraftError(f"a model is an nn.Module, made by calling its class, e.g. Net(), not {model!r}.")
    return next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))


def require_precision(model: nn.Module) -> None:
    """Refuse a model with numbers too coarse for what is said of it."""
    coarse = next((t.dtype for t in (*model.parameters(), *model.buffers()) if t.dtype in _COARSE), None)
    if coarse is not None:
        raise LingraftError(
            f"the model computes in {str(coarse).removeprefix('torch.')}, of which nothing can be proven. Write"
            " model.float(), which changes no weight, and use that model."
        )


@contextmanager
def limited_threads(count: int | None) -> Iterator[None]:
    """Inside, PyTorch uses this number of threads; None: as many as it likes."""
    if count is None:
        yield
        return
    if count < 1:
        raise LingraftError(f"--threads must be at least 1, not {count}.")
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
