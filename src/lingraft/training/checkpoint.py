"""Where training goes on after a stop: one file, replaced as a whole after each epoch.

checkpoint.safetensors is the truth: it holds the weights, the optimizer's state, the settings and the history. What
else training writes (model.safetensors, history.jsonl) follows from it and is mended from it after a kill in between.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.errors import LingraftError
from lingraft.runs import Run, load_tensors, load_weights, save_tensors
from lingraft.training.history import Epoch
from lingraft.training.optimizer import STATE_PARTS, optimizer_state, restore_optimizer

_START_OVER = "Choose another folder (-o), or start over in this one (--restart)."


@dataclass(frozen=True)
class Checkpoint:
    """Everything that the next epoch depends on."""

    settings: Mapping[str, Any]
    epochs: Sequence[Epoch]
    #: as in the state dict of the model
    weights: Mapping[str, Tensor]
    #: as in `optimizer_state`: part → name of the parameter → tensor
    optimizer: Mapping[str, Mapping[str, Tensor]]
    #: whether `on_epoch` ended training: then there is no next epoch
    stopped: bool = False

    @classmethod
    def of(
        cls,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        settings: Mapping[str, Any],
        epochs: Sequence[Epoch],
        stopped: bool = False,
    ) -> "Checkpoint":
        """The state now."""
        return cls(settings, epochs, model.state_dict(), optimizer_state(model, optimizer), stopped)

    def save(self, run: Run) -> None:
        """Write it, atomically."""
        tensors = {f"model.{name}": tensor for name, tensor in self.weights.items()}
        for part, values in self.optimizer.items():
            tensors |= {f"{part}.{name}": tensor for name, tensor in values.items()}
        history = [epoch.as_dict() for epoch in self.epochs]
        about = {"settings": dict(self.settings), "history": history, "stopped": self.stopped}
        save_tensors(run.checkpoint_path, tensors, about)

    @classmethod
    def load(cls, run: Run) -> "Checkpoint":
        """Read it; a damaged one is a LingraftError."""
        try:
            tensors, metadata = load_tensors(run.checkpoint_path)
            parts: dict[str, dict[str, Tensor]] = {part: {} for part in ("model", *STATE_PARTS)}
            for key, tensor in tensors.items():
                part, _, name = key.partition(".")
                parts[part][name] = tensor
            epochs = [Epoch.of(record) for record in metadata["history"]]
            stopped = metadata.get("stopped", False) is True  # older versions could not be
            return cls({**metadata["settings"]}, epochs, parts.pop("model"), parts, stopped)
        except (LingraftError, KeyError, TypeError) as error:
            raise LingraftError(f"training cannot go on from {run.checkpoint_path}: {error} {_START_OVER}") from error

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer, run: Run) -> None:
        """Put the state into `model` and `optimizer`."""
        load_weights(model, self.weights, run.checkpoint_path)
        restore_optimizer(model, optimizer, self.optimizer)


def check_same_settings(run: Run, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on with a run that was started with other settings; says which."""
    wanted = json.loads(json.dumps(wanted))
    names = [name for name in {**stored, **wanted} if stored.get(name) != wanted.get(name)]
    if names:
        what = "; ".join(f"{name}: {stored.get(name)} there, {wanted.get(name)} now" for name in names)
        raise LingraftError(f"{run.path} holds a run with other settings ({what}). {_START_OVER}")


def refuse_foreign(run: Run) -> None:
    """Refuse to write over a model that was not trained in this folder."""
    if run.weights_path.exists():
        raise LingraftError(f"{run.path} holds a model already, and no checkpoint to go on from. {_START_OVER}")
