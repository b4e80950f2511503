"""What grafting did to a network: SA, RA and UNR before and after, on test images."""

from typing import Any

import torch
from torch import nn

from lingraft.attack.evaluation import Attack, evaluate
from lingraft.data import ImageSet
from lingraft.grafting.config import GraftingConfig
from lingraft.grafting.instability import unstable_ratio
from lingraft.model.plan import plan
from lingraft.model.sites import sites
from lingraft.model.surgery import masks


def measure(
    model: nn.Module, test: ImageSet, config: GraftingConfig, images: int, device: torch.device
) -> dict[str, Any]:
    """SA on all test images, RA on the first `images` of them, and UNR on the first `config.bound_images`."""
    attack = Attack(config.eps, steps=20, restarts=5, seed=config.seed)
    result = evaluate(model, test, attack, images=min(images, len(test)), device=device)
    few = test.take(min(config.bound_images, len(test)))
    return {
        "sa": result.sa,
        "images_sa": result.images_sa,
        "ra": result.ra,
        "images": result.images,
        "attack": str(result.attack),
        "unstable_ratio": unstable_ratio(model, few, config.eps, config.bounds),
        "images_unstable": len(few),
        "bounds": config.bounds,
    }


def before_and_after(
    model: nn.Module, grafted: nn.Module, test: ImageSet, config: GraftingConfig, images: int, device: torch.device
) -> dict[str, Any]:
    """The figures of `measure` before and after grafting, and how many neurons are grafted where; JSON-able."""
    found = {
        name: measure(network, test, config, images, device)
        for name, network in (("before", model), ("after", grafted))
    }
    return {**found, "plan": plan(sites(grafted, tuple(test.images.shape[1:])), masks(grafted)).as_dict()}
