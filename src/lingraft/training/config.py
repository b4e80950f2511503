"""How a network is trained robustly: all that can be set, checked when it is made."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lingraft.ball import PIXELS, Ball, Eps, Radius, Range, eps_name, largest, radius, shown, value_range
from lingraft.errors import LingraftError
from lingraft.names import lookup
from lingraft.training.certified import IntervalTraining, MixedTraining, SmallBoxTraining
from lingraft.training.fast import FastAdversarialLoss
from lingraft.training.initialization import INITIALIZATIONS
from lingraft.training.loss import Loss, ScheduledLoss
from lingraft.training.madry import PgdLoss
from lingraft.training.optimizer import OPTIMIZERS
from lingraft.training.ramp import GrowingLoss, Ramp
from lingraft.training.schedule import SCHEDULES, Schedule, make_schedule
from lingraft.training.standard import StandardLoss
from lingraft.training.trades import TradesLoss

#: Named starting points: the paper's, and one that a laptop finishes. Fewer epochs need more weight decay: what it
#: takes off the weights in all, Σ lr·wd/(1 − momentum), is 18.6 in the paper and here 11.7; with 5e-4 it would be 2.9.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"epochs": 200, "schedule": "step", "lr": 0.1},
    "laptop": {"epochs": 30, "schedule": "one-cycle", "lr": 0.1, "weight_decay": 2e-3, "validation_images": 1000},
}
#: The same for certified methods: that of Shi et al. 2021 for CIFAR-10, and one that a laptop finishes.
_ADAM: dict[str, Any] = {"optimizer": "adam", "gradient_clip": 10.0, "weight_decay": 0.0, "attack_steps": 1}
CERTIFIED_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {**_ADAM, "epochs": 160, "schedule": "step", "lr": 5e-4},
    "laptop": {**_ADAM, "epochs": 20, "schedule": "one-cycle", "lr": 2e-3, "validation_images": 1000},
}
_CERTIFIED_SETTINGS = ("kappa", "alpha", "regularization")


@dataclass(frozen=True)
class TrainingConfig:
    """The defaults are the paper's (Section 5, "Training details")."""

    #: radius of the ball to be robust in, in values of the data, or a tensor of one for each feature; 0 is standard
    #: training
    eps: Radius
    method: str = "fat"
    epochs: int = 200
    batch: int = 128
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "step"
    #: epochs at which `step` divides the learning rate by 10; None: at 1/2 and 3/4 (certified methods: 3/4 and 7/8)
    milestones: tuple[int, ...] | None = None
    #: step of FGSM in units of ε
    fgsm_step: float = 1.25
    #: λ of GradAlign
    grad_align: float = 0.2
    #: share of each batch that GradAlign looks at
    grad_align_share: float = 1.0
    #: steps of the attack inside PGD training, TRADES, MTL-IBP, SABR and (S)TAPS
    attack_steps: int = 10
    #: β of TRADES
    trades_beta: float = 6.0
    #: PGD steps for the robust accuracy after each epoch, and on how many validation images (None: all)
    validation_steps: int = 10
    validation_images: int | None = None
    #: training looks at balls of so many times that radius; all measurements stay at `eps`
    eps_factor: float = 1.0
    seed: int = 0
    optimizer: str = "sgd"
    #: longest gradient of the weights; longer ones are shortened to it
    gradient_clip: float | None = None
    #: how the weights are drawn; None: he, for certified methods intervals
    initialization: str | None = None
    #: epochs with ε = 0, then epochs in which ε grows; None: 0 and 0, certified methods: 1, and up to half of all
    warm_up: int | None = None
    ramp: int | None = None
    #: κ, the weight of the cross entropy of the images themselves, at the start and at the end of the ramp
    kappa: tuple[float, float] = (0.0, 0.0)
    #: α of MTL-IBP, the weight of the certified term
    alpha: float = 0.01
    #: λ of the regularizers that fade while ε grows
    regularization: float = 0.5
    #: SABR and STAPS: λ, the width of the box around an attacked image as a share of that of the ball
    small_box: float = 0.1
    #: TAPS and STAPS: how many activations, the last ones, are attacked instead of bounded
    attacked_sites: int = 1
    #: the range of values of the data
    clip: Range = PIXELS

    def __post_init__(self) -> None:
        lookup("method", self.method, METHODS)
        lookup("schedule", self.schedule, SCHEDULES)
        for name in ("epochs", "batch", "attack_steps", "validation_steps"):
            _check(name, getattr(self, name), at_least=1)
        object.__setattr__(self, "eps", radius(self.eps, alike=True))
        object.__setattr__(self, "clip", value_range(self.clip))
        for name in ("weight_decay", "fgsm_step", "grad_align", "trades_beta", "momentum"):
            _check(name, getattr(self, name), at_least=0)
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise LingraftError(f"lr must be above 0, not {self.lr}.")
        if not 0 < self.grad_align_share <= 1:
            raise LingraftError(
                f"grad_align_share must be above 0 and at most 1, not {self.grad_align_share}."
                " For training without GradAlign, set grad_align to 0."
            )
        if not (math.isfinite(self.eps_factor) and self.eps_factor > 0):
            raise LingraftError(f"eps_factor must be above 0, not {self.eps_factor}.")
        if self.momentum >= 1:
            raise LingraftError(f"momentum must be below 1, not {self.momentum}.")
        lookup("optimizer", self.optimizer, OPTIMIZERS)
        if self.initialization is not None:
            lookup("initialization", self.initialization, INITIALIZATIONS)
        if self.gradient_clip is not None and not self.gradient_clip > 0:
            raise LingraftError(f"gradient_clip must be above 0, not {self.gradient_clip}.")
        self._check_growth()
        if self.certified:
            self._check_certified()
        if self.validation_images is not None:
            _check("validation_images", self.validation_images, at_least=1)
        self.learning_rate()  # complains of wrong milestones

    def _check_growth(self) -> None:
        for name in ("warm_up", "ramp"):
            if getattr(self, name) is not None:
                _check(name, getattr(self, name), at_least=0)
        if self.growth.full_from >= self.epochs:
            raise LingraftError(
                f"a warm-up of {self.growth.warm_up} and a ramp of {self.growth.length} epochs leave none of"
                f" {self.epochs} epochs for the full radius. Train longer, or shorten them."
            )

    def _check_certified(self) -> None:
        _check("regularization", self.regularization, at_least=0)
        if not 0 < self.alpha <= 1:
            raise LingraftError(f"alpha must be above 0 and at most 1, not {self.alpha}.")
        if not 0 < self.small_box <= 1:
            raise LingraftError(f"small_box must be above 0 and at most 1, not {self.small_box}.")
        _check("attacked_sites", self.attacked_sites, at_least=0)
        if not all(0 <= kappa <= 1 for kappa in self.kappa):
            raise LingraftError(f"kappa must be two weights between 0 and 1, not {self.kappa}.")

    @property
    def ball(self) -> Ball:
        """The ball that training looks at."""
        return Ball(self.eps, self.clip).scaled(self.eps_factor)

    def learning_rate(self) -> Schedule:
        """The factor on the learning rate over the time in epochs."""
        milestones = self.milestones
        if milestones is None and self.certified and self.schedule == "step":  # while ε grows, the rate stays high
            milestones = (math.ceil(self.epochs * 3 / 4), math.ceil(self.epochs * 7 / 8))
        return make_schedule(self.schedule, self.epochs, milestones)

    @property
    def certified(self) -> bool:
        """Whether the method trains a certificate."""
        return METHODS[self.method].certified

    @property
    def growth(self) -> Ramp:
        """How ε grows."""
        if not self.certified:
            return Ramp(self.warm_up or 0, self.ramp or 0)
        warm_up = min(1, self.epochs // 4) if self.warm_up is None else self.warm_up
        return Ramp(warm_up, max(0, self.epochs // 2 - warm_up) if self.ramp is None else self.ramp)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able; what the method does not use is left out, and the range of values if it is that of pixels."""
        settings = {**asdict(self), "eps": eps_name(self.eps), "clip": shown(self.clip)}
        if self.clip == PIXELS:
            del settings["clip"]
        if not self.certified:
            for name in (*_CERTIFIED_SETTINGS, *(name for name in ("warm_up", "ramp") if settings[name] is None)):
                del settings[name]
        for name in {own for method in METHODS.values() for own in method.settings}.difference(
            METHODS[self.method].settings
        ):
            del settings[name]
        if self.optimizer == "sgd" and self.gradient_clip is None:
            del settings["optimizer"], settings["gradient_clip"]
        if self.initialization is None:
            del settings["initialization"]
        for name in ("grad_align_share", "eps_factor"):
            if settings[name] == 1:
                del settings[name]
        return settings


@dataclass(frozen=True)
class Method:
    """A way to train that `method` names: the loss, and what goes with it.

    One of your own needs nothing but this record: `METHODS["mine"] = Method("what it is", lambda config: MyLoss(…))`
    before `lingraft.train(…, method="mine")`. The loss is any function of (model, images, labels, generator), see
    `Loss`, or an object with a method `at(time)` that gives one, see `ScheduledLoss`. With ε = 0 it is not asked: then
    every method is standard training. (A loss for one call needs no name: `lingraft.train(…, loss=MyLoss())`.)
    """

    title: str
    #: the loss, from the settings that the user chose
    make: Callable[[TrainingConfig], Loss | ScheduledLoss]
    #: whether it trains a certificate: ε grows as `TrainingConfig.growth` says and no epoch before its end is kept, the
    #: presets and the initialization are others, and after each epoch it is measured what intervals certify
    certified: bool = False
    #: whether the best epoch is the one of which intervals certify most; MTL-IBP leaves proofs to a verifier
    keep_certified: bool = False
    #: settings that only this method and its kin have: runs of the others do not mention them
    settings: tuple[str, ...] = ()


def _growing(config: TrainingConfig, make: Callable[[Ball], Loss]) -> Loss | ScheduledLoss:
    """The loss in the ball, which grows if the settings say so."""
    return GrowingLoss(make, config.ball, config.growth) if config.growth.full_from else make(config.ball)


def _interval_training(config: TrainingConfig) -> ScheduledLoss:
    crown = config.method == "crown-ibp"
    return IntervalTraining(config.ball, config.growth, config.kappa, config.regularization, crown)


def _small_box_training(config: TrainingConfig) -> ScheduledLoss:
    own = METHODS[config.method].settings
    return SmallBoxTraining(
        config.ball,
        config.growth,
        config.small_box if "small_box" in own else 1.0,
        config.attacked_sites if "attacked_sites" in own else 0,
        config.attack_steps,
        config.regularization,
    )


#: The one list of methods: name → what it is.
METHODS: dict[str, Method] = {
    "fat": Method(
        "fast adversarial training with GradAlign, the paper's",
        lambda config: _growing(
            config,
            lambda ball: FastAdversarialLoss(ball, config.fgsm_step, config.grad_align, config.grad_align_share),
        ),
    ),
    "pgd": Method(
        "adversarial training with PGD",
        lambda config: _growing(config, lambda ball: PgdLoss(ball, config.attack_steps)),
    ),
    "trades": Method(
        "TRADES",
        lambda config: _growing(config, lambda ball: TradesLoss(ball, config.attack_steps, config.trades_beta)),
    ),
    "ibp": Method("certified training with interval bounds", _interval_training, certified=True, keep_certified=True),
    "crown-ibp": Method(
        "certified training with CROWN bounds that give way to intervals",
        _interval_training,
        certified=True,
        keep_certified=True,
    ),
    "mtl-ibp": Method(
        "adversarial training with a share of certified training",
        lambda config: MixedTraining(
            config.ball, config.growth, config.alpha, config.attack_steps, config.regularization
        ),
        certified=True,
    ),
    "sabr": Method(
        "certified training with intervals of small boxes around attacked images",
        _small_box_training,
        certified=True,
        settings=("small_box",),
    ),
    "taps": Method(
        "certified training with intervals up to the last activations, which are attacked",
        _small_box_training,
        certified=True,
        settings=("attacked_sites",),
    ),
    "staps": Method(
        "the same, with intervals of small boxes",
        _small_box_training,
        certified=True,
        settings=("small_box", "attacked_sites"),
    ),
}


def make_loss(config: TrainingConfig) -> Loss | ScheduledLoss:
    """The loss of the configured method; with ε = 0 nothing is attacked and every method is standard training."""
    return METHODS[config.method].make(config) if largest(config.eps) > 0 else StandardLoss()


def with_preset(preset: str, eps: Eps, method: str = "fat", **chosen: Any) -> TrainingConfig:
    """The settings that the named preset has for a method, but for those chosen: where these are None, it decides."""
    presets = CERTIFIED_PRESETS if lookup("method", method, METHODS).certified else PRESETS
    usual = lookup("preset", preset, presets)
    ours = {name: value for name, value in chosen.items() if value is not None}
    return TrainingConfig(radius(eps), method, **{**usual, **ours})


def in_todays_words(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that were kept with a run: version 0.1.0 called `gradient_clip` clip."""
    today = {key: in_todays_words(value) if key == "training" else value for key, value in settings.items()}
    if isinstance(today.get("clip"), int | float):
        today["gradient_clip"] = today.pop("clip")
    return today


def _check(name: str, value: float, at_least: float) -> None:
    if not (math.isfinite(value) and value >= at_least):
        raise LingraftError(f"{name} must be at least {at_least}, not {value}.")
