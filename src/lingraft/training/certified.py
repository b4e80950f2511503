"""Certified training: descending on an upper bound of the loss over the whole ball."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.attack.ball import bounds
from lingraft.ball import Ball, Eps
from lingraft.training.differentiable import (
    Interval,
    clean_pass,
    crown_cross_entropy,
    graph_of,
    interval_bounds,
    margin_intervals,
    worst_cross_entropy,
)
from lingraft.training.differentiable.comparison import require_agreement_once
from lingraft.training.loss import Figures, Loss
from lingraft.training.madry import PgdLoss
from lingraft.training.ramp import Ramp
from lingraft.training.tightness import balance, tightness

#: The regularizers are computed at this part of the radius at least: at radius 0 there is no width to compare.
SMALLEST_PART = 1e-3


@dataclass(frozen=True)
class CertifiedLoss:
    """weight · (upper bound of the cross entropy) + (1 − weight) · (another loss) + λ · (tightness + balance).

    The bound is the cross entropy at the lower bounds of the margins over the ball of radius `eps`, cut to the range of
    values. Batch norm in training mode normalizes the bounds by the statistics of the clean images (Shi et al. 2021).
    Papers: Gowal et al., "On the effectiveness of interval bound propagation", 2018; De Palma et al., "Expressive
    losses for verified robustness via convex combinations", ICLR 2024.
    """

    eps: Ball | Eps
    weight: float = 1.0
    #: what gets the rest of the weight; None: the cross entropy of the images themselves
    other: Loss | None = None
    #: β, the share of CROWN in the bound; the rest is that of intervals
    crown: float = 0.0
    #: λ of the warm-up regularizers
    regularization: float = 0.0

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Figures]:
        graph = graph_of(model)
        require_agreement_once(model, images, labels, self.eps)
        logits, statistics = None, None
        if graph.normalizes_by_batch or (self.other is None and self.weight < 1):
            logits, statistics = clean_pass(graph, images)
        box = Interval(*bounds(images, self.eps))
        found = interval_bounds(graph, *box, statistics)
        margins = margin_intervals(graph, found.last, labels).lower
        certified = (margins.detach() > 0).sum(1) == margins.shape[1] - 1  # all but that of the label with itself
        figures: Figures = {"certified_accuracy": certified.float().mean()}
        worst = worst_cross_entropy(margins, labels)
        if self.crown > 0:
            by_crown = crown_cross_entropy(graph, found, box, labels, statistics).mean()
            worst = (1 - self.crown) * worst + self.crown * by_crown
        value = self.weight * worst
        if self.weight < 1 and self.other is not None:
            rest, more = self.other(model, images, labels, generator)
            value = value + (1 - self.weight) * rest
            figures |= more
        elif self.weight < 1 and logits is not None:
            value = value + (1 - self.weight) * F.cross_entropy(logits, labels)
        if self.regularization > 0:
            penalty = tightness(found) + balance(graph, found)
            value = value + self.regularization * penalty
            figures["warm_up_penalty"] = penalty.detach()
        return value, figures


@dataclass(frozen=True)
class IntervalTraining:
    """IBP and CROWN-IBP: κ · clean cross entropy + (1 − κ) · its bound; κ moves as ε grows, the regularizers fade.

    With CROWN, its share of the bound is 1 at the start and falls to 0 as ε grows (Zhang et al. 2020): CROWN's bounds
    are the tighter ones for a network that has not learned to have tight intervals yet.
    """

    eps: Ball | Eps
    ramp: Ramp
    #: κ at the start and at the end of the ramp
    kappa: tuple[float, float] = (0.0, 0.0)
    #: λ of the warm-up regularizers at the start; it ends at 0
    regularization: float = 0.5
    crown: bool = False

    def at(self, time: float) -> Loss:
        """The loss at a time in epochs."""
        part = self.ramp(time)
        kappa = (1 - part) * self.kappa[0] + part * self.kappa[1]
        return CertifiedLoss(
            Ball.of(self.eps).scaled(max(part, SMALLEST_PART)),
            weight=1 - kappa,
            crown=1 - part if self.crown else 0.0,
            regularization=self.regularization * (1 - part),
        )


@dataclass(frozen=True)
class MixedTraining:
    """MTL-IBP: (1 − α) · cross entropy at attacked images + α · its interval bound.

    Paper: De Palma et al., "Expressive losses for verified robustness via convex combinations", ICLR 2024. A small α
    asks only for bounds that a verifier can finish; α = 1 is IBP. ε grows and the regularizers fade as in IBP.
    """

    eps: Ball | Eps
    ramp: Ramp
    alpha: float = 0.01
    attack_steps: int = 1
    regularization: float = 0.5

    def at(self, time: float) -> Loss:
        """The loss at a time in epochs."""
        part = self.ramp(time)
        eps = Ball.of(self.eps).scaled(max(part, SMALLEST_PART))
        return CertifiedLoss(
            eps,
            weight=self.alpha,
            other=PgdLoss(eps, self.attack_steps),
            regularization=self.regularization * (1 - part),
        )
