"""Grafting a network and fine-tuning it, with its figures kept in the run."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, fx, nn

from lingraft.grafting import FineTuning, GraftingConfig, graft_network
from lingraft.runs import Run
from lingraft.training import Destination, History, Loss, ScheduledLoss, TrainingConfig, TrainingData
from lingraft.training.callbacks import OnEpoch, print_epoch


def tune_and_keep(
    model: nn.Module,
    data: TrainingData,
    config: GraftingConfig,
    tuning: FineTuning | None,
    destination: Destination,
    *,
    mask: Mapping[str, Tensor] | None = None,
    loss: Loss | ScheduledLoss | None = None,
    device: torch.device | str = "cpu",
    on_epoch: OnEpoch | Sequence[OnEpoch] = print_epoch,
) -> tuple[fx.GraphModule, History | None]:
    """`graft_network`, and the figures of the best epoch are kept with the run."""
    grafted, history = graft_network(
        model, data, config, tuning, destination, mask=mask, loss=loss, device=device, on_epoch=on_epoch
    )
    if history is not None and tuning is not None:
        keep_training(destination.run, history, tuning.training)
    return grafted, history


def keep_training(run: Run, history: History, config: TrainingConfig) -> bool:
    """Write how training went to the run's summary, unless it is there and nothing was trained now; gives whether."""
    if history.resumed == len(history.epochs) and run.summary().training is not None:
        return False
    figures = {"best": history.best.as_dict(), "epochs": len(history.epochs), "settings": config.as_dict()}
    run.add_to_summary("training", figures)
    return True
