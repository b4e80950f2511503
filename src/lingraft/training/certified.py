"""Certified training: descending on an upper bound of the loss over the whole ball."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.attack.ball import bounds
from lingraft.ball import Ball, Eps
from lingraft.training.differentiable import (
    Interval,
    attacked_margins,
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
from lingraft.training.small_box import SmallBox
from lingraft.training.tightness import balance, tightness

#: How much more the attacked half of TAPS weighs in the gradient than the bound it is multiplied with: the authors'.
ATTACKED_WEIGHT = 5.0

#: The regularizers are computed at this part of the radius at least: at radius 0 there is no width to compare.
SMALLEST_PART = 1e-3


@dataclass(frozen=True)
class CertifiedLoss:
    """weight · (upper bound of the cross entropy) + (1 − weight) · (another loss) + λ · (tightness + balance).

    The bound is the cross entropy at the lower bounds of the margins over the ball of radius `eps`, cut to the range of
    values. Batch norm in training mode normalizes the bounds by the statistics of the clean images (Shi et al. 2021).
    With a `small_box` the bound is that of a part of the ball; with `attacked_sites` it is multiplied with the cross
    entropy at margins that are attacked behind the box of a hidden layer. Neither is an upper bound any more.
    Papers: Gowal et al., "On the effectiveness of interval bound propagation", 2018; De Palma et al., "Expressive
    losses for verified robustness via convex combinations", ICLR 2024; `SmallBox` and `attacked_margins` have theirs.
    """

    eps: Ball | Eps
    weight: float = 1.0
    #: what gets the rest of the weight; None: the cross entropy of the images themselves
    other: Loss | None = None
    #: β, the share of CROWN in the bound; the rest is that of intervals
    crown: float = 0.0
    #: λ of the warm-up regularizers
    regularization: float = 0.0
    #: the part of the ball that is bounded; None: all of it
    small_box: SmallBox | None = None
    #: how many activations, the last ones, are attacked instead of bounded, and in how many steps
    attacked_sites: int = 0
    attack_steps: int = 1
    #: share of each batch that is bounded, its first images: the mean over them estimates that over all
    share: float = 1.0

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Figures]:
        value, figures = self._bound(model, images, labels, generator)
        if self.weight < 1 and self.other is not None:
            rest, more = self.other(model, images, labels, generator)
            return value + (1 - self.weight) * rest, figures | more
        return value, figures

    def _bound(
        self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Figures]:
        """All but the other loss."""
        graph = graph_of(model)
        require_agreement_once(model, images, labels, self.eps)
        logits, statistics = None, None
        if graph.normalizes_by_batch or (self.other is None and self.weight < 1):
            logits, statistics = clean_pass(graph, images)
        everyone, count = labels, math.ceil(self.share * len(images))
        images, labels = images[:count], labels[:count]
        if self.small_box is None:
            box, bounded = Interval(*bounds(images, self.eps)), "certified_accuracy"
        else:
            box, bounded = self.small_box.around(model, images, labels, self.eps, generator), "small_box_accuracy"
        found = interval_bounds(graph, *box, statistics)
        margins = margin_intervals(graph, found.last, labels).lower
        certified = (margins.detach() > 0).sum(1) == margins.shape[1] - 1  # all but that of the label with itself
        figures: Figures = {bounded: certified.float().mean()}
        worst = worst_cross_entropy(margins, labels)
        if self.attacked_sites:
            attacked = attacked_margins(
                graph, found, box, labels, self.attacked_sites, generator,
                steps=self.attack_steps, statistics=statistics,
            )  # fmt: skip
            value = F.cross_entropy(-attacked, labels, reduction="none")
            # the same value, with so many times the gradient
            value = ATTACKED_WEIGHT * value - (ATTACKED_WEIGHT - 1) * value.detach()
            worst = (value * F.cross_entropy(-margins, labels, reduction="none")).mean()
        if self.crown > 0:
            by_crown = crown_cross_entropy(graph, found, box, labels, statistics).mean()
            worst = (1 - self.crown) * worst + self.crown * by_crown
        value = self.weight * worst
        if self.weight < 1 and self.other is None and logits is not None:
            value = value + (1 - self.weight) * F.cross_entropy(logits, everyone)
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


@dataclass(frozen=True)
class SmallBoxTraining:
    """SABR, TAPS and STAPS: interval bounds of a small box around an attacked image, of the last activations an attack.

    SABR (Müller et al. 2023) has a `share` below 1 and no `attacked_sites`, TAPS (Mao et al. 2023) the share 1, STAPS
    both. With neither it is IBP. ε grows and the regularizers fade as in IBP.
    """

    eps: Ball | Eps
    ramp: Ramp
    share: float = 0.1
    attacked_sites: int = 0
    attack_steps: int = 1
    regularization: float = 0.5

    def at(self, time: float) -> Loss:
        """The loss at a time in epochs."""
        part = self.ramp(time)
        return CertifiedLoss(
            Ball.of(self.eps).scaled(max(part, SMALLEST_PART)),
            regularization=self.regularization * (1 - part),
            small_box=SmallBox(self.share, self.attack_steps) if self.share < 1 else None,
            attacked_sites=self.attacked_sites,
            attack_steps=self.attack_steps,
        )
