"""The module itself, where what is given is something around it, or no module at all."""

from typing import Any

import torch
from torch import nn

from lingraft.errors import LingraftError

#: What runs a module on several devices.
_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


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


def require_precision(model: nn.Module) -> None:
    """Refuse a model in less than single precision: what is proven of its weights would not hold of its own sums."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
            kind = str(tensor.dtype).removeprefix("torch.")
            raise LingraftError(
                f"the model computes in {kind} ({name!r}), where rounding alone can change the class. Verify it in"
                " single precision: model.float(). What is proven then holds for that model."
            )
