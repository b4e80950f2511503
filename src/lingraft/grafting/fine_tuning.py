"""Grafting a trained model and training it on (the paper, Section 4, "Linearize and tune")."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from lingraft.data import ImageSet
from lingraft.errors import LingraftError
from lingraft.grafting.choose import choose, score
from lingraft.grafting.config import FineTuning, GraftingConfig
from lingraft.grafting.regularizers import ReluStability, WeightNorm, prune_small_weights
from lingraft.grafting.schedule import GradualSchedule
from lingraft.grafting.scores import Scores
from lingraft.model.grafted_activation import pack
from lingraft.model.sites import grafted_activations, sites
from lingraft.model.surgery import check_shapes, masks, prepared, shapes
from lingraft.runs import GraftedSite, Run
from lingraft.settings_file import write_settings
from lingraft.training import (
    Destination,
    History,
    Loss,
    Plan,
    ScheduledLoss,
    TrainingData,
    fit,
    loss_at,
    make_loss,
    total,
)
from lingraft.training.callbacks import OnEpoch, print_epoch
from lingraft.training.certified import CertifiedLoss
from lingraft.training.checkpoint import refuse_foreign
from lingraft.training.small_box import SmallBox
from lingraft.training.train import named_loss


def graft_network(
    model: nn.Module,
    data: TrainingData,
    config: GraftingConfig,
    tuning: FineTuning | None,
    destination: Destination,
    *,
    mask: Mapping[str, Tensor] | None = None,
    loss: Loss | ScheduledLoss | None = None,
    device: torch.device | str = "cpu",
    on_epoch: OnEpoch | Sequence[OnEpoch] = print_epoch,
) -> tuple[fx.GraphModule, History | None]:
    """A grafted and fine-tuned copy of `model` in eval mode, kept in a run with its scores; `model` is not changed.

    Scores are computed on training images; a `mask` takes the place of scoring and choosing, a `loss` that of the loss
    of the configured method. Without `tuning` the model is grafted only. Stopped and called again with the same
    arguments it goes on after the last whole epoch.
    """
    if config.gradual and (tuning is None or mask is not None):
        raise LingraftError("gradual grafting chooses its neurons while it trains: give it epochs, and no mask.")
    run, description = destination.run, destination.description.model_copy()
    if destination.restart:
        run.remove_results()
    elif tuning is None or not run.checkpoint_path.exists():
        refuse_foreign(run)
    found = sites(model, tuple(data.train.images.shape[1:]))
    grafted = prepared(model, shapes(found)).to(device)
    scores = None
    if mask is not None:
        check_shapes(mask, found)
        chosen = dict(mask)
    elif config.method == "baseline":
        chosen = {}
    else:
        scores = _scores(grafted, data.train, config, run)
        chosen = choose(scores, config, masks(grafted))
    if not config.gradual:
        graft_in_place(grafted, chosen, config)
    if tuning is not None and tuning.freeze_weights and not _has_lines(grafted, config):
        raise LingraftError("there are no lines to train, and the weights are frozen. Leave out one or the other.")
    if tuning is None:
        history = None
        run.save_weights(grafted)
        if destination.options:
            write_settings(run.settings_path, destination.command, destination.options)
    else:
        # the same run may be named from another folder when it goes on
        parent = description.parent and str(Path(description.parent).resolve())
        settings = {**config.as_dict(), **tuning.as_dict(), "augment": data.augment, "parent": parent}
        settings |= named_loss(loss)
        if mask is not None:
            settings["mask"] = _digest(mask)
        plan = _plan(grafted, tuning, settings, loss)
        if config.gradual and scores is not None:
            plan = _gradually(plan, grafted, data.train, config, scores)
        description.grafted = describe_sites(grafted)
        target = replace(destination, description=description, restart=False)
        history = fit(grafted, data, plan, target, device=device, on_epoch=on_epoch)
    description.grafted = describe_sites(grafted)
    run.write_description(description)
    return grafted.eval(), history


def graft_in_place(model: nn.Module, mask: Mapping[str, Tensor], config: GraftingConfig) -> None:
    """Graft the neurons of `mask` that are not grafted yet with the line, or the 0, that the config names."""
    for name, site in grafted_activations(model).items():
        if name in mask and config.how.zero:
            site.prune(mask[name])
        elif name in mask:
            site.graft(mask[name], config.slope, config.intercept)


def _has_lines(model: nn.Module, config: GraftingConfig) -> bool:
    """Whether there are lines to learn, or will be: pruned neurons have none."""
    if config.gradual and not config.how.zero:
        return True
    return any(bool((site.mask & ~site.fixed).any()) for site in grafted_activations(model).values())


def _scores(model: nn.Module, train: ImageSet, config: GraftingConfig, run: Run) -> Scores:
    """Those that an earlier call left in the run, or new ones."""
    if run.scores_path.exists() and run.checkpoint_path.exists():
        with suppress(LingraftError):  # damaged: the same ones can be made again
            return Scores.load(run.scores_path)  # if they were made otherwise, `fit` refuses the settings
    scores = score(model, train, config)
    scores.save(run.scores_path)
    return scores


def describe_sites(model: nn.Module) -> list[GraftedSite]:
    """What `model.json` says of the grafted sites of `model`."""
    return [
        GraftedSite(name=name, shape=site.neurons, grafted=site.grafted, pruned=int(site.fixed.sum()))
        for name, site in grafted_activations(model).items()
    ]


def _digest(mask: Mapping[str, Tensor]) -> str:
    content = b"".join(name.encode() + pack(mask[name]).numpy().tobytes() for name in sorted(mask))
    return hashlib.sha256(content).hexdigest()[:16]


#: Share of each batch that the certified term of fine-tuning bounds: bounds of all would take longer than all the rest.
BOUNDED = 0.25


def _plan(model: nn.Module, tuning: FineTuning, settings: Mapping[str, Any], own: Loss | ScheduledLoss | None) -> Plan:
    """The training loop's plan; changes the weights of `model` if small ones are to be pruned."""
    training = tuning.training
    lines = [p for site in grafted_activations(model).values() for p in (site.slope, site.intercept)]
    others = {id(p) for p in lines}
    weights = [p for p in model.parameters() if id(p) not in others]
    groups: list[dict[str, Any]] = [{"params": lines, "lr": tuning.line_lr, "weight_decay": 0.0}]
    if tuning.freeze_weights:
        for weight in weights:
            weight.requires_grad_(False)
    else:
        groups.insert(0, {"params": weights, "lr": training.lr, "weight_decay": training.weight_decay})
    if "prune" in tuning.regularize:
        prune_small_weights(model, tuning.prune_below)
    loss = make_loss(training) if own is None else own
    if tuning.from_scratch:
        return Plan(training, loss, groups, settings, keep_from=training.growth.full_from, certify=training.certified)
    # of a loss that changes with time, the last one: of a certified method, that for the full radius
    loss = loss_at(loss, math.inf)
    if tuning.small_box:
        loss = CertifiedLoss(training.ball, small_box=SmallBox(tuning.small_box, training.attack_steps))
    elif tuning.certified:
        loss = CertifiedLoss(training.ball, tuning.certified, other=loss, share=BOUNDED)
    parts: list[tuple[float, Loss]] = [(1.0, loss)]
    if "stability" in tuning.regularize:
        parts.append((tuning.stability, ReluStability(training.ball)))
    if "l1" in tuning.regularize:
        parts.append((tuning.l1, WeightNorm()))
    whole = loss if len(parts) == 1 else total(*parts)
    certify = training.certified or max(tuning.certified, tuning.small_box) > 0
    return Plan(training, whole, groups, settings, certify=certify)


def _gradually(plan: Plan, model: nn.Module, train: ImageSet, config: GraftingConfig, scores: Scores) -> Plan:
    """The plan, with more neurons grafted before each of the first epochs; the best epoch is sought after these."""
    present = masks(model)
    share = sum(int(mask.sum()) for mask in present.values()) / sum(mask.numel() for mask in present.values())
    schedule = GradualSchedule(config.ratio, plan.config.epochs, share)

    def graft_more(epoch: int) -> None:
        if epoch < schedule.steps:
            now = score(model, train, config) if config.rescore and epoch else scores
            graft_in_place(model, choose(now, config, masks(model), schedule.at(epoch)), config)

    return replace(plan, before_epoch=graft_more, keep_from=schedule.steps - 1)
