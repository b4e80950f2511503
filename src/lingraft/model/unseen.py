"""What torch.fx does not see of a model, and would leave out of its graph: refused, with what to do instead."""

import torch
from torch import fx, nn
from torch.nn.modules import module as registry
from torch.nn.modules.lazy import LazyModuleMixin

from lingraft.errors import LingraftError
from lingraft.model.plain import FOLDED


def refuse_unseen(model: nn.Module) -> None:
    """Refuse hooks, replaced methods, and scripted or quantized layers, naming the layer."""
    if registry._global_forward_hooks or registry._global_forward_pre_hooks:
        raise LingraftError(
            "there are forward hooks on all modules, which may change what a model gives. Remove them: hook.remove()."
        )
    for name, module in model.named_modules():
        what = f"layer {name!r} ({type(module).__name__})" if name else f"the model ({type(module).__name__})"
        if isinstance(module, torch.jit.ScriptModule):
            raise LingraftError(f"{what} was made by torch.jit. Give the Python module that it was made from.")
        if type(module).__module__.startswith("torch.ao."):
            raise LingraftError(f"{what} is quantized, which is not supported. Give the model in floating point.")
        if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():  # type: ignore[misc]
            raise LingraftError(f"{what} has no weights yet. Call the model once, with images of the right shape.")
        if module._forward_hooks or not set(map(type, module._forward_pre_hooks.values())) <= FOLDED:
            raise LingraftError(
                f"{what} has a forward hook, which may change what it gives. Remove it: hook.remove(). Hooks that"
                " torch.nn.utils.prune has put there go with prune.remove."
            )
        replaced = [name for name in vars(module) if _is_method(type(module), name)]
        if replaced:
            raise LingraftError(
                f"the {replaced[0]} of {what} was replaced on the object. Write it in the class; of a model compiled by"
                " torch.compile give the original."
            )
        homes = type(module).__module__, type(module).forward.__module__
        if homes[0].startswith("torch.nn.") and not homes[1].startswith("torch."):
            raise LingraftError(f"the forward of torch's own class of {what} was replaced. Derive a class of your own.")
        if type(module).__call__ is not nn.Module.__call__ and not isinstance(module, fx.GraphModule):
            raise LingraftError(f"the class of {what} overrides __call__. Write what it does in forward.")


def _is_method(kind: type[nn.Module], name: str) -> bool:
    """Whether it is the forward of a class, or a method that torch's or lingraft's own classes call."""
    method = getattr(kind, name, None)
    home = str(getattr(method, "__module__", "")).partition(".")[0]
    return name == "forward" or (callable(method) and home in ("torch", "lingraft"))
