"""Grafting: which neurons to make linear, the surgery that does it, and the training that follows."""

from lingraft.grafting.choose import choose, score, select_ranked
from lingraft.grafting.config import (
    INSTABILITIES,
    METHODS,
    RANKS,
    FineTuning,
    GraftingConfig,
    fine_tuning_defaults,
    fine_tuning_like,
)
from lingraft.grafting.fine_tuning import graft_network
from lingraft.grafting.harm import Harm
from lingraft.grafting.hydra import Hydra
from lingraft.grafting.instability import Instability, unstable_ratio
from lingraft.grafting.ranking import rank
from lingraft.grafting.regularizers import REGULARIZERS
from lingraft.grafting.schedule import GradualSchedule
from lingraft.grafting.scores import Scores
from lingraft.grafting.selection import GAMMAS, select
from lingraft.grafting.significance import (
    SIGNIFICANCES,
    ActivationGradient,
    ActivationMagnitude,
    KnownSignificance,
    RandomSignificance,
    Significance,
)
from lingraft.model.grafted_activation import GraftedActivation
from lingraft.model.plan import GraftingPlan, plan
from lingraft.model.sites import Site, grafted_activations, sites
from lingraft.model.surgery import graft, masks, prepared, pruned
from lingraft.model.tracing import trace

__all__ = [
    "GAMMAS",
    "INSTABILITIES",
    "METHODS",
    "RANKS",
    "REGULARIZERS",
    "SIGNIFICANCES",
    "ActivationGradient",
    "ActivationMagnitude",
    "FineTuning",
    "GradualSchedule",
    "GraftedActivation",
    "GraftingConfig",
    "GraftingPlan",
    "Harm",
    "Hydra",
    "Instability",
    "KnownSignificance",
    "RandomSignificance",
    "Scores",
    "Significance",
    "Site",
    "choose",
    "fine_tuning_defaults",
    "fine_tuning_like",
    "graft",
    "graft_network",
    "grafted_activations",
    "masks",
    "plan",
    "prepared",
    "pruned",
    "rank",
    "score",
    "select",
    "select_ranked",
    "sites",
    "trace",
    "unstable_ratio",
]
