"""Adversarial training (fast, PGD, TRADES) and certified training, in a loop that can be killed at any moment.

`train_network` is the one call; `fit` with a `Plan` of your own trains anything else with the same guarantees.
"""

from lingraft.training.callbacks import EarlyStopping, OnEpoch, TensorBoard, print_epoch
from lingraft.training.config import METHODS, PRESETS, Method, TrainingConfig, make_loss, with_preset
from lingraft.training.history import Epoch, History
from lingraft.training.initialization import draw, initialize, initialize_for_intervals
from lingraft.training.loop import Destination, Plan, TrainingData, fit
from lingraft.training.loss import Figures, Loss, ScheduledLoss, loss_at, total
from lingraft.training.schedule import SCHEDULES, Schedule, make_schedule
from lingraft.training.train import train_network

__all__ = [
    "METHODS",
    "PRESETS",
    "SCHEDULES",
    "Destination",
    "EarlyStopping",
    "Epoch",
    "Figures",
    "History",
    "Loss",
    "Method",
    "OnEpoch",
    "Plan",
    "Schedule",
    "ScheduledLoss",
    "TensorBoard",
    "TrainingConfig",
    "TrainingData",
    "draw",
    "fit",
    "initialize",
    "initialize_for_intervals",
    "loss_at",
    "make_loss",
    "make_schedule",
    "print_epoch",
    "total",
    "train_network",
    "with_preset",
]
