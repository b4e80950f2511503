"""Adversarial training (fast, PGD, TRADES) and certified training, in a loop that can be killed at any moment.

`train` is the one call; `fit` with a `Plan` of your own trains anything else with the same guarantees.
"""

from lingraft.training.config import CERTIFIED, METHODS, PRESETS, TrainingConfig, preset_settings
from lingraft.training.history import Epoch, History
from lingraft.training.initialization import draw, initialize, initialize_for_intervals
from lingraft.training.loop import Plan, fit
from lingraft.training.loss import Figures, Loss, ScheduledLoss, loss_at, total
from lingraft.training.schedule import SCHEDULES, Schedule, make_schedule
from lingraft.training.train import make_loss, make_plan, train

__all__ = [
    "CERTIFIED",
    "METHODS",
    "PRESETS",
    "SCHEDULES",
    "Epoch",
    "Figures",
    "History",
    "Loss",
    "Plan",
    "Schedule",
    "ScheduledLoss",
    "TrainingConfig",
    "draw",
    "fit",
    "initialize",
    "initialize_for_intervals",
    "loss_at",
    "make_loss",
    "make_plan",
    "make_schedule",
    "preset_settings",
    "total",
    "train",
]
