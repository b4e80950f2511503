"""What to graft and how to train it afterwards: all that can be set, checked when it is made."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lingraft.ball import Eps, Radius, eps_name, radius
from lingraft.errors import LingraftError
from lingraft.grafting.regularizers import REGULARIZERS
from lingraft.grafting.selection import GAMMAS
from lingraft.grafting.significance import SIGNIFICANCES
from lingraft.model.surgery import require_line
from lingraft.names import lookup
from lingraft.solver.methods import METHODS as BOUNDS
from lingraft.training import TrainingConfig
from lingraft.training.config import in_todays_words


@dataclass(frozen=True)
class Method:
    """A way to choose neurons and what to put there (the paper, Section "The superiority of grafting")."""

    title: str
    #: which significance it must use; None: the one that is set
    significance: str | None = None
    #: whether instability counts (γ as set) or significance alone (γ = 0)
    instability: bool = False
    #: whether the chosen neurons become 0 instead of a learned line
    zero: bool = False


METHODS: dict[str, Method] = {
    "grafting": Method("graft lines where γ·r_u − r_s is highest", instability=True),
    "zero": Method("graft 0 where γ·r_u − r_s is highest", instability=True, zero=True),
    "random": Method("graft lines at random", significance="random"),
    "sap": Method("prune activations of least magnitude (Dhillon et al. 2018)", significance="sap", zero=True),
    "gap": Method("prune activations of least gradient (Ye et al. 2020)", significance="gap", zero=True),
    "hydra": Method("prune activations by learned scores (Sehwag et al. 2020)", significance="hydra", zero=True),
    "baseline": Method("graft nothing, only train on"),
}

#: Among which neurons the ratio is grafted, by their ranks.
RANKS: dict[str, str] = {
    "network": "of all neurons together, as in the paper",
    "site": "of the neurons of each site by themselves",
}

#: Ways to measure how much a neuron stands in the way of a proof.
INSTABILITIES: dict[str, str] = {
    "count": "for how many images the neuron is unstable, the paper's",
    "harm": "how much its relaxation loosens the certified margins",
    "harm-per-site": "the same, relative to the mean of its site",
    "harm-per-significance": "the same, for each unit of significance",
    "weighted-interval": "how wide its interval is, by the weights that carry it on (Han and Kim 2025)",
}


@dataclass(frozen=True)
class GraftingConfig:
    """Which neurons become linear. The defaults are the paper's (Section 4)."""

    #: radius of the ball in which neurons are stable or not, in values of the data, or a tensor of one for each feature
    eps: Radius
    method: str = "grafting"
    #: share of the neurons of the network to graft
    ratio: float = 0.5
    gammas: tuple[float, ...] = GAMMAS
    significance: str = "gap"
    instability: str = "count"
    ranks: str = "network"
    bounds: str = "crown"
    #: how many training images, the first ones, significance and instability are computed on at most
    images: int = 1000
    bound_images: int = 100
    #: the line that grafted neurons start from; None: that of their activation
    slope: float | None = None
    intercept: float | None = None
    #: graft over the first half of fine-tuning instead of at once, and score anew at each step
    gradual: bool = False
    rescore: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        lookup("method", self.method, METHODS)
        lookup("significance", self.significance, SIGNIFICANCES)
        lookup("instability", self.instability, INSTABILITIES)
        lookup("ranks", self.ranks, RANKS)
        lookup("bounds", self.bounds, BOUNDS)
        if self.instability.startswith("harm") and self.bounds == "alpha-crown":
            raise LingraftError("harm is measured in the backward pass of CROWN. Choose the bounds crown or intervals.")
        object.__setattr__(self, "eps", radius(self.eps, alike=True))
        if not (math.isfinite(self.ratio) and 0 <= self.ratio <= 1):
            raise LingraftError(f"the ratio of neurons to graft must lie between 0 and 1, not {self.ratio}.")
        if not self.gammas or any(math.isnan(gamma) or gamma < 0 for gamma in self.gammas):
            raise LingraftError(f"γ must be one number or more, each 0 or above, not {list(self.gammas)}.")
        require_line(self.slope, self.intercept)
        if min(self.images, self.bound_images) < 1:
            raise LingraftError(f"scores need at least 1 image, not {min(self.images, self.bound_images)}.")
        if self.rescore and not self.gradual:
            raise LingraftError("scoring anew at each step belongs to gradual grafting. Add --gradual.")

    @property
    def how(self) -> Method:
        """What the method means."""
        return METHODS[self.method]

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        gammas = [str(gamma) if math.isinf(gamma) else gamma for gamma in self.gammas]
        return {**asdict(self), "eps": eps_name(self.eps), "gammas": gammas}


@dataclass(frozen=True)
class FineTuning:
    """How the grafted network is trained. The defaults are the paper's (Section 5, "Training details")."""

    #: of the weights: method, ε, epochs, schedule, batch size; its `lr` is theirs
    training: TrainingConfig
    #: learning rate of slopes and intercepts, which have no weight decay
    line_lr: float = 0.01
    freeze_weights: bool = False
    regularize: tuple[str, ...] = ()
    #: factors and threshold of the regularizers (Xiao et al. 2019); small values of our own, not tuned
    stability: float = 1e-4
    l1: float = 1e-5
    prune_below: float = 1e-3
    #: α, the share of interval-certified training in the loss, as in MTL-IBP; 0: none, as in the paper
    certified: float = 0.0
    #: λ of SABR: fine-tune on the bound of a small box around the attacked image, with this share of the ball; 0: no
    small_box: float = 0.0
    #: whether the network has not been trained before: ε of a certified method grows first
    from_scratch: bool = False

    def __post_init__(self) -> None:
        for name in self.regularize:
            lookup("regularizer", name, REGULARIZERS)
        for name in ("line_lr", "stability", "l1", "prune_below"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise LingraftError(f"{name} must be above 0, not {value}.")
        if not 0 <= self.certified <= 1:
            raise LingraftError(f"the weight of the certified term must lie between 0 and 1, not {self.certified}.")
        if not 0 <= self.small_box <= 1:
            raise LingraftError(f"the share of the small box must lie between 0 and 1, not {self.small_box}.")
        if self.freeze_weights and self.regularize:
            raise LingraftError("regularizers train the weights; frozen weights cannot be regularized. Leave one out.")

    def as_dict(self) -> dict[str, Any]:
        """JSON-able; without what is not used of what came after version 0.1.0."""
        settings = {**asdict(self), "training": self.training.as_dict(), "regularize": list(self.regularize)}
        for name in ("certified", "small_box", "from_scratch"):
            if not settings[name]:
                del settings[name]
        return settings


#: Named starting points, like those of training: the paper's, and one that a laptop finishes. In a few epochs the
#: paper's rates hardly move a line; `gap-before` is the gradient that the authors' code takes.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"epochs": 100, "lr": 0.001, "line_lr": 0.01, "significance": "gap"},
    "laptop": {"epochs": 8, "lr": 0.005, "line_lr": 0.05, "significance": "gap-before"},
}
#: The rates with Adam, whose steps do not shrink with the gradient.
_ADAM = {"lr": 5e-4, "line_lr": 5e-4}

#: What fine-tuning takes over from the training of the network, where it is known.
_INHERITED = (
    "method", "eps_factor", "batch", "momentum", "weight_decay", "fgsm_step", "grad_align", "grad_align_share",
    "attack_steps", "trades_beta", "validation_steps", "validation_images", "optimizer", "gradient_clip",
    "kappa", "alpha", "small_box", "attacked_sites",
)  # fmt: skip


def grafting_preset(preset: str, optimizer: str) -> dict[str, Any]:
    """What the named preset has for `epochs`, `lr`, `line_lr` and `significance`, with this optimizer."""
    return {**lookup("preset", preset, PRESETS), **(_ADAM if optimizer == "adam" else {})}


def fine_tuning_like(settings: Mapping[str, Any], eps: Eps, **changes: Any) -> TrainingConfig:
    """The paper's fine-tuning with what `settings` say of how the network was trained, and these changes."""
    settings = in_todays_words(settings)
    return fine_tuning_defaults(eps, **{**{name: settings[name] for name in _INHERITED if name in settings}, **changes})


def fine_tuning_defaults(eps: Eps, **changes: Any) -> TrainingConfig:
    """The paper's training of the weights in fine-tuning: 100 epochs, cosine from 0.001; `changes` override."""
    return TrainingConfig(**{"eps": eps, "epochs": 100, "lr": 0.001, "schedule": "cosine", **changes})
