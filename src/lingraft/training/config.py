"""How a network is trained robustly: all that can be set, checked when it is made."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from lingraft.errors import LingraftError
from lingraft.names import lookup
from lingraft.training.schedule import SCHEDULES, make_schedule

#: name → what it is
METHODS = {
    "fat": "fast adversarial training with GradAlign, the paper's",
    "pgd": "adversarial training with PGD",
    "trades": "TRADES",
}

#: Named starting points: the paper's, and one that a laptop finishes.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"epochs": 200, "schedule": "step", "lr": 0.1},
    "laptop": {"epochs": 15, "schedule": "one-cycle", "lr": 0.1, "validation_images": 1000},
}


@dataclass(frozen=True)
class TrainingConfig:
    """The defaults are the paper's (Section 5, "Training details")."""

    #: radius of the ball to be robust in, in pixels of [0, 1]; 0 is standard training
    eps: float
    method: str = "fat"
    epochs: int = 200
    batch: int = 128
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "step"
    #: epochs at which `step` divides the learning rate by 10; None: at 1/2 and 3/4
    milestones: tuple[int, ...] | None = None
    #: step of FGSM in units of ε
    fgsm_step: float = 1.25
    #: λ of GradAlign
    grad_align: float = 0.2
    #: steps of the attack inside PGD training and TRADES
    attack_steps: int = 10
    #: β of TRADES
    trades_beta: float = 6.0
    #: PGD steps for the robust accuracy after each epoch, and on how many validation images (None: all)
    validation_steps: int = 10
    validation_images: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        lookup("method", self.method, METHODS)
        lookup("schedule", self.schedule, SCHEDULES)
        for name in ("epochs", "batch", "attack_steps", "validation_steps"):
            _check(name, getattr(self, name), at_least=1)
        for name in ("eps", "weight_decay", "fgsm_step", "grad_align", "trades_beta", "momentum"):
            _check(name, getattr(self, name), at_least=0)
        if self.eps > 1:
            raise LingraftError(f"eps must lie between 0 and 1, not {self.eps}: it is a distance in pixels of [0, 1].")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise LingraftError(f"lr must be above 0, not {self.lr}.")
        if self.momentum >= 1:
            raise LingraftError(f"momentum must be below 1, not {self.momentum}.")
        if self.validation_images is not None:
            _check("validation_images", self.validation_images, at_least=1)
        make_schedule(self.schedule, self.epochs, self.milestones)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)


def _check(name: str, value: float, at_least: float) -> None:
    if not (math.isfinite(value) and value >= at_least):
        raise LingraftError(f"{name} must be at least {at_least}, not {value}.")
