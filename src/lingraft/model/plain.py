"""The module itself, where what is given is something around it, or no module at all; and copies of it."""

import copy
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from lingraft.errors import LingraftError

M = TypeVar("M", bound=nn.Module)

#: What runs a module on several devices.
_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
#: The hooks of torch.nn.utils.weight_norm and spectral_norm, which compute a weight before the layer is called: what
#: reads the weight calls them as well.
FOLDED = frozenset({WeightNorm, SpectralNorm})


def plain(model: Any) -> nn.Module:
    """The module inside of DataParallel and of what torch.compile makes; a LingraftError for what is no model."""
    while isinstance(model, nn.Module) and (isinstance(model, _PARALLEL) or hasattr(model, "_orig_mod")):
        model = model.module if isinstance(model, _PARALLEL) else model._orig_mod
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise LingraftError(f"{model.__name__} is a class. A model is made by calling it: {model.__name__}(…).")
    if isinstance(model, torch.jit.ScriptModule):
        raise LingraftError(
            "the model was made by torch.jit, which hides its layers. Give the Python module that it was made from; if"
            " there is none left, write it with torch.onnx.export and give lingraft.load_onnx(file)."
        )
    if isinstance(model, torch.export.ExportedProgram):
        raise LingraftError("the model was made by torch.export. Give the module that it was made from.")
    if not isinstance(model, nn.Module):
        raise LingraftError(f"a model is an nn.Module, not {type(model).__name__}.")
    return model


def copied(model: M) -> M:
    """A copy, also where torch.nn.utils.weight_norm or spectral_norm compute a weight, which as such has no copy."""
    with torch.no_grad():
        for module in model.modules():
            renew(module)
        return copy.deepcopy(model)


def renew(layer: nn.Module) -> None:
    """Let these two compute the weight, as they do when the layer is called in eval mode: nothing else changes."""
    for hook in layer._forward_pre_hooks.values():
        if isinstance(hook, SpectralNorm):
            setattr(layer, hook.name, hook.compute_weight(layer, do_power_iteration=False))
        elif isinstance(hook, WeightNorm):
            setattr(layer, hook.name, hook.compute_weight(layer))
