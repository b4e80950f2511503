"""Adversarial training: fast (FGSM with GradAlign), PGD and TRADES, in a loop that can be killed at any moment.

`train` is the one call; `fit` with a `Plan` of your own trains anything else with the same guarantees.
"""

from lingraft.training.config import METHODS, PRESETS, TrainingConfig
from lingraft.training.history import Epoch, History
from lingraft.training.initialization import initialize
from lingraft.training.loop import Plan, fit
from lingraft.training.loss import Figures, Loss, total
from lingraft.training.schedule import SCHEDULES, Schedule, make_schedule
from lingraft.training.train import make_loss, train

__all__ = [
    "METHODS",
    "PRESETS",
    "SCHEDULES",
    "Epoch",
    "Figures",
    "History",
    "Loss",
    "Plan",
    "Schedule",
    "TrainingConfig",
    "fit",
    "initialize",
    "make_loss",
    "make_schedule",
    "total",
    "train",
]
