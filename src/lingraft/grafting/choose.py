"""From a model and images to a mask, as a GraftingConfig says."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.ball import PIXELS, eps_name, shown
from lingraft.data import ImageSet
from lingraft.errors import LingraftError
from lingraft.grafting.config import RANKS, GraftingConfig
from lingraft.grafting.harm import Harm, per_significance, per_site
from lingraft.grafting.instability import Instability
from lingraft.grafting.scores import Scores
from lingraft.grafting.selection import GAMMAS, select
from lingraft.grafting.significance import SIGNIFICANCES, Significance
from lingraft.grafting.weighted_interval import WeightedInterval
from lingraft.model.sites import sites
from lingraft.model.surgery import require_finite, shapes
from lingraft.names import lookup


def score(model: nn.Module, data: ImageSet, config: GraftingConfig, significance: Significance | None = None) -> Scores:
    """Significance and, where the method asks for it, instability of every neuron.

    `data` should be training images: scores on test images would leak into the model. A `significance` of your own
    takes the place of the one that the config names.
    """
    require_finite(model)
    images, few = (data.take(min(count, len(data))) for count in (config.images, config.bound_images))
    name = config.how.significance or config.significance
    if significance is None:
        significance = SIGNIFICANCES[name].make(config)
    else:
        name = type(significance).__name__
    significant = {
        site: torch.as_tensor(values).detach().cpu() for site, values in significance.score(model, images).items()
    }
    _check_sites(name, significant, shapes(sites(model, tuple(data.images.shape[1:]))))
    facts: dict[str, Any] = {"significance": name, "images": len(images)}
    facts |= {"eps": eps_name(config.eps), "seed": config.seed}
    if data.clip != PIXELS:
        facts["clip"] = shown(data.clip)
    if name in SIGNIFICANCES and SIGNIFICANCES[name].of_ratio:
        facts["ratio"] = config.ratio
    instability = None
    if config.how.instability:
        unstable = _instability(model, few, config, significant)
        instability = {site: unstable[site] for site in significant}  # the same order of sites in both
        facts |= {"instability": config.instability, "bounds": config.bounds, "bound_images": len(few)}
    return Scores(significant, instability, facts)


def _check_sites(name: str, scores: Mapping[str, Tensor], known: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse scores that do not have one number for each neuron."""
    found = {site: tuple(values.shape) for site, values in scores.items()}
    if found != known:
        raise LingraftError(f"the score {name!r} has the sites and shapes {found}, but the model has {dict(known)}.")


def choose(
    scores: Scores, config: GraftingConfig, grafted: Mapping[str, Tensor] | None = None, upto: float | None = None
) -> dict[str, Tensor]:
    """The mask of the neurons to graft; with `upto`, of the first ones of them up to that ratio."""
    if config.method == "baseline":
        return {name: torch.zeros(values.shape, dtype=torch.bool) for name, values in scores.significance.items()}
    return select_ranked(
        scores,
        config.ratio if upto is None else upto,
        config.gammas if config.how.instability else (0.0,),
        config.ranks,
        grafted,
        of_ratio=config.ratio,
    )


def select_ranked(
    scores: Scores,
    ratio: float,
    gammas: Sequence[float] = GAMMAS,
    ranks: str = "network",
    grafted: Mapping[str, Tensor] | None = None,
    *,
    of_ratio: float | None = None,
) -> dict[str, Tensor]:
    """`select` by the ranks of all neurons together, or, with ranks "site", in each site by those of its own."""
    lookup("ranks", ranks, RANKS)
    if ranks == "network":
        return select(scores.instability_rank, scores.significance_rank, ratio, gammas, grafted, of_ratio=of_ratio)
    mask: dict[str, Tensor] = {}
    for name in scores.significance:
        part, before = scores.of_site(name), {name: grafted[name]} if grafted and name in grafted else None
        mask |= select(part.instability_rank, part.significance_rank, ratio, gammas, before, of_ratio=of_ratio)
    return mask


def _instability(
    model: nn.Module, few: ImageSet, config: GraftingConfig, significant: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    if config.instability == "count":
        return Instability(config.eps, config.bounds).score(model, few)
    if config.instability == "weighted-interval":
        return WeightedInterval(config.eps, config.bounds).score(model, few)
    harm = Harm(config.eps, config.bounds).score(model, few)
    if config.instability == "harm-per-site":
        return per_site(harm)
    return per_significance(harm, significant) if config.instability == "harm-per-significance" else harm
