"""Grafting a run: score, choose, graft, fine-tune and measure, into a run folder of its own."""

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.ball import GIVEN, Clip, Eps
from lingraft.data import ImageSet, spec_of
from lingraft.device import limited_threads, resolve_device
from lingraft.errors import LingraftError
from lingraft.files import line_of, replacing
from lingraft.grafting import METHODS, FineTuning, GraftingConfig, fine_tuning_like
from lingraft.grafting.candidates import Candidate, best, require_best
from lingraft.grafting.config import grafting_preset
from lingraft.grafting.fine_tuning import describe_sites
from lingraft.grafting.mask_file import load_mask
from lingraft.grafting.outcome import before_and_after
from lingraft.grafting.selection import GAMMAS
from lingraft.model.code import is_code
from lingraft.model.plan import GraftingPlan, plan
from lingraft.model.sites import sites
from lingraft.model.surgery import masks
from lingraft.names import lookup, short_name
from lingraft.progress import console
from lingraft.report.run_figures import write_front
from lingraft.runs import ModelDescription, Run, load
from lingraft.runs.holding import holding
from lingraft.settings_file import write_settings
from lingraft.training import Destination
from lingraft.training.callbacks import OnEpoch, print_epoch
from lingraft.training.checkpoint import refuse_foreign
from lingraft.training.distributed import joined, leads
from lingraft.work.given import (
    Folder,
    clip_of,
    describe_own,
    digest_data,
    images_of,
    keep_onnx,
    kept_run,
    named,
    network_of,
    origin_in,
    radius_of,
    require_same_data,
    run_of,
)
from lingraft.work.guided import Guided, GuidedConfig, best_step
from lingraft.work.search import Search, SearchConfig
from lingraft.work.train import material_of
from lingraft.work.tune import tune_and_keep


@dataclass(frozen=True)
class Grafted:
    """A grafted and fine-tuned network, the run that keeps it, and what grafting did to it."""

    model: nn.Module
    run: Run
    #: `grafting` of summary.json: settings, before, after, plan; None where another process measures (torchrun)
    figures: dict[str, Any] | None
    plan: GraftingPlan


def graft_and_tune(
    model: nn.Module | Folder,
    data: Any = None,
    *,
    test_data: Any = None,
    preset: str = "laptop",
    ratio: float | None = None,
    method: str = "grafting",
    min_sa: float | None = None,
    guided: int = 0,
    guided_share: float = 0.01,
    ungraft: bool = False,
    gamma: float | Sequence[float] = GAMMAS,
    gradual: bool = False,
    rescore: bool = False,
    regularize: Sequence[str] = (),
    out: Folder | None = None,
    mask: str | Path | Mapping[str, Tensor] | None = None,
    significance: str | None = None,
    instability: str = "count",
    ranks: str = "network",
    bounds: str = "crown",
    score_images: int = 1000,
    bound_images: int = 100,
    slope: float | None = None,
    intercept: float | None = None,
    epochs: int | None = None,
    line_lr: float | None = None,
    lr: float | None = None,
    finetune_loss: str | None = None,
    freeze_weights: bool = False,
    batch: int | None = None,
    eps: Eps | None = None,
    clip: Clip = GIVEN,
    images: int = 1000,
    search_epochs: int = 5,
    search_images: int = 50,
    search_timeout: float = 2.0,
    search_workers: int | None = None,
    restart: bool = False,
    threads: int | None = None,
    seed: int = 0,
    device: str = "auto",
    on_epoch: OnEpoch | Sequence[OnEpoch] = print_epoch,
) -> Grafted:
    """Score, choose, graft, fine-tune and evaluate the network of a run: all of `lingraft graft`, with its options.

    `model` is the folder of a run, whose data set and `eps` are used unless others are given, or a network of your own.
    `data` are to train on, `test_data` (default: the test images of `data`) to measure what grafting did.
    `ratio` of all neurons (default: half) are grafted by `method`; a `mask`, or the file of one, names them instead.
    With method "auto" the ratio and the instability are those that prove most while keeping `min_sa`. `finetune_loss`
    mixes interval-certified training into the loss, e.g. "mtl-ibp:0.01", or takes its place, "sabr:0.1". `epochs`, the
    learning rates and the significance are those of the `preset` where they are None; what else is not said of
    fine-tuning is as the run was trained.

    Then follow `guided` steps, each of which grafts `guided_share` of the neurons more, those that cost most on
    training images that the verifier leaves undecided, and fine-tunes for `search_epochs`, until SA falls below
    `min_sa`; with `ungraft` lines that no proof needs are given back in the end. The step with the highest VA on
    validation images is the result; `guided.jsonl` in its run has them all.

    `out` is the run folder to write (default: beside the run, named after method and percent). Called again with the
    same arguments it goes on after a stop. `on_epoch` is called after each epoch of fine-tuning, as in
    `lingraft.train`. `eps` may be a tensor of a radius for each feature, and `clip` is the range of values; by default
    both are those of the run. Single steps of it: `lingraft.score`, `select` and `graft`.
    """
    lookup("method", method, {**METHODS, "auto": None})
    parent = kept_run(model, None)
    trained = None if parent is None else parent.summary().training
    settings = trained.settings if trained else {}
    usual = grafting_preset(preset, settings.get("optimizer", "sgd"))
    significance = usual["significance"] if significance is None else significance
    epochs = usual["epochs"] if epochs is None else epochs
    lr = usual["lr"] if lr is None else lr
    line_lr = usual["line_lr"] if line_lr is None else line_lr
    config = GraftingConfig(
        radius_of(eps, parent, data),
        method="grafting" if method == "auto" else method,
        ratio=0.5 if ratio is None else ratio,
        gammas=(float(gamma),) if isinstance(gamma, int | float) else tuple(gamma),
        significance=significance,
        instability=instability,
        ranks=ranks,
        bounds=bounds,
        images=score_images,
        bound_images=bound_images,
        slope=slope,
        intercept=intercept,
        gradual=gradual,
        rescore=rescore,
        seed=seed,
    )
    if epochs < 0:
        raise LingraftError(f"--epochs must be 0 or more, not {epochs}.")
    tuning = None
    if epochs:
        tuning = FineTuning(
            fine_tuning_like(
                settings,
                config.eps,
                **{
                    "epochs": epochs,
                    "lr": lr,
                    "seed": seed,
                    "clip": None,  # that of the data, which are not read yet
                    **({} if batch is None else {"batch": batch}),
                },
            ),
            line_lr,
            freeze_weights,
            tuple(regularize),
            **_certified_term(finetune_loss),
        )
    wanted = None
    if method == "auto":
        if min_sa is None or ratio is not None or mask is not None or tuning is None:
            raise LingraftError(
                "--method auto needs --min-sa and epochs; it chooses the neurons, so no --ratio or --mask."
            )
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise LingraftError("--method auto does not run under torchrun. Graft with the --ratio that it chose.")
        if parent is None:
            raise LingraftError("--method auto keeps what it tries in a run. Make one with `lingraft save` first.")
        wanted = SearchConfig(min_sa, search_epochs, search_images, search_timeout, search_workers)
    elif min_sa is not None and not guided and not ungraft:
        raise LingraftError("--min-sa belongs to --method auto, --guided and --ungraft.")
    elif ratio is not None and mask is not None:
        raise LingraftError("--mask names the neurons to graft, so no --ratio.")
    steps = GuidedConfig(
        guided, guided_share, min_sa, ungraft, search_epochs, search_images, search_timeout, search_workers
    )
    if guided or ungraft:
        if tuning is None:
            raise LingraftError("guided grafting trains after each step. Give it epochs.")
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise LingraftError("--guided and --ungraft do not run under torchrun. Leave them out.")
        if isinstance(model, nn.Module) or is_code(str(model)) or (parent is not None and parent.describe().needs_code):
            raise LingraftError(
                "guided grafting reads networks from run folders, which do not keep code. Leave it out."
            )
    with ExitStack() as inside:
        inside.enter_context(limited_threads(threads))
        where, follower = inside.enter_context(joined(resolve_device(device)))
        work = _Graft(model, parent, data, test_data, config, tuning, mask, clip, images, where, inside)
        percent = f"{100 * (work.config.ratio if wanted is None else wanted.min_sa):.4g}"
        called = type(model).__name__.lower() if isinstance(model, nn.Module) else short_name(str(model))
        beside = Path("runs") / called if parent is None else parent.path
        target = run_of(follower or out or beside.with_name(f"{beside.name}-{method}-{percent}"))
        if parent is not None and target.path.resolve() == parent.path.resolve():
            raise LingraftError(f"{target.path} is the run to graft. Choose another folder with -o.")
        if wanted is not None:
            work.search(wanted)
        options = {
            **_named(model, parent), "data": data, "test_data": test_data, "clip": "none" if clip is None else clip,
            "preset": preset, "ratio": ratio, "method": method, "min_sa": min_sa, "guided": guided,
            "guided_share": guided_share, "ungraft": ungraft, "gamma": config.gammas,
            "gradual": gradual, "rescore": rescore, "regularize": tuple(regularize) or None, "mask": mask,
            "significance": significance, "instability": instability, "ranks": ranks, "bounds": bounds,
            "score_images": score_images, "bound_images": bound_images, "slope": slope, "intercept": intercept,
            "epochs": epochs, "line_lr": line_lr, "lr": lr, "finetune_loss": finetune_loss,
            "freeze_weights": freeze_weights, "batch": batch, "eps": config.eps, "images": images,
            "search_epochs": search_epochs, "search_images": search_images, "search_timeout": search_timeout,
            "search_workers": search_workers, "threads": threads, "seed": seed, "device": device,
        }  # fmt: skip
        if guided or ungraft:
            return work.guide(target, steps, restart, options, on_epoch)
        return work.graft(target, restart, options, on_epoch)


def _named(model: nn.Module | Folder, parent: Run | None) -> dict[str, Any]:
    """The run and the code that the network is from, as the command line names them."""
    if parent is not None:
        return {"run": parent.path, "model": parent.model}
    return {"model": model} if isinstance(model, nn.Module) or is_code(str(model)) else {"run": model}


class _Graft:
    """The work of `graft_and_tune`, after its options have been looked at."""

    def __init__(
        self,
        model: nn.Module | Folder,
        parent: Run | None,
        data: Any,
        test_data: Any,
        config: GraftingConfig,
        tuning: FineTuning | None,
        mask: str | Path | Mapping[str, Tensor] | None,
        clip: Clip,
        images: int,
        device: torch.device,
        inside: ExitStack,
    ):
        self.given, self.parent, self.inside = model, parent, inside
        #: of the test images, the first ones that are attacked
        self.images = images
        self.config, self.device = config, device
        self.model = network_of(model, device)
        described = None if parent is None else parent.describe()
        if data is None and described is not None:
            data = described.data_set()
            require_same_data(described, data, "train", asked=False)
        if data is None:
            raise LingraftError("give data to train on: --data with the name or the file of a data set.")
        name = named(data)
        augment = spec_of(name).augment if name is not None else False
        self.material, name = material_of(name or data, None, augment, clip_of(clip, name or data, parent))
        limits = self.material.train.clip
        self.tuning = tuning and replace(tuning, training=replace(tuning.training, clip=limits))
        self.description = self._describe(described, name, named(test_data))
        self.description.check_fits(self.material.train, "training")
        self.test = self._test_images(data, test_data)
        self.mask = load_mask(Path(mask)) if isinstance(mask, str | Path) else mask
        #: what is said of how the neurons were chosen, beside the settings
        self.chosen_by: dict[str, Any] = {}
        if self.mask is not None:
            planned = self.plan(self.model, self.mask)
            self.config = replace(config, ratio=planned.grafted / planned.neurons)
            self.chosen_by = {"mask": str(mask) if isinstance(mask, str | Path) else "given"}

    def _describe(self, parent: ModelDescription | None, data: str, test_data: str | None) -> ModelDescription:
        about = {
            "data": data, "data_sha256": digest_data(data), "eps": self.config.eps,
            "clip": self.material.train.clip, "seed": self.config.seed,
        }  # fmt: skip
        if parent is None:
            shape = tuple(self.material.train.images.shape[1:])
            return describe_own(self.model, shape, test_data=test_data, origin=origin_in(self.given, None), **about)
        assert self.parent is not None
        about |= {"test_data": test_data or parent.test_data, "parent": str(self.parent.path), "grafted": None}
        return parent.model_copy(update=about)

    def _test_images(self, data: Any, test_data: Any) -> ImageSet:
        """Others than those to train on."""
        if test_data is None:
            test_data = self.description.test_data or data
        name = named(test_data)
        if name is None and test_data is data:
            raise LingraftError("give test_data, images that the network is not trained on, to measure it.")
        for trained in (self.description, *([] if self.parent is None else [self.parent.describe()])):
            require_same_data(trained, name, "test", asked=True)
        _, images = images_of(test_data, "test", None, clip=self.description.clip)
        self.description.check_fits(images, "test")
        return images

    def plan(self, model: nn.Module, mask: Mapping[str, Tensor]) -> GraftingPlan:
        """How many neurons of which site are grafted."""
        return plan(sites(model, self.description.input_shape), mask)

    def search(self, wanted: SearchConfig) -> None:
        """Look for the ratio and the instability; all candidates are shown, drawn and kept even if none will do."""
        assert self.tuning is not None
        assert self.parent is not None
        self.inside.enter_context(holding(self.parent.path))
        search = Search(self.parent, self.model, self.material, self.config, self.tuning, wanted, device=self.device)
        rounds = search.rounds(_say)
        paths = write_front(search.run, rounds, best(rounds[-1], wanted.min_sa), wanted.min_sa)
        _say(f"all candidates: {'  '.join(map(str, paths))}")
        found: Candidate = require_best(rounds[-1], wanted.min_sa)
        _say(f"chosen: {found}")
        self.config = replace(self.config, ratio=found.ratio, instability=found.instability)
        self.chosen_by = {"search": {"min_sa": wanted.min_sa, "chosen": found.as_dict()}}

    def graft(
        self,
        target: Run,
        restart: bool,
        options: Mapping[str, Any],
        on_epoch: OnEpoch | Sequence[OnEpoch],
    ) -> Grafted:
        """Graft and fine-tune into `target`, then measure what it did."""
        destination = Destination(target, self.description, restart, "graft", options)
        self.inside.enter_context(holding(target.path))
        keep_onnx(target, self.given, self.parent)
        grafted, history = tune_and_keep(
            self.model, self.material, self.config, self.tuning, destination,
            mask=self.mask, device=self.device, on_epoch=on_epoch,
        )  # fmt: skip
        planned = self.plan(grafted, masks(grafted))
        if not leads():
            return Grafted(grafted, target, None, planned)
        done = history is not None and history.resumed == len(history.epochs)
        return self._measured(grafted, target, again=not done)

    def _measured(self, grafted: nn.Module, run: Run, again: bool = False) -> Grafted:
        """What grafting did, from the run unless it is not there or to be measured `again`."""
        if again or run.summary().grafting is None:
            measured = before_and_after(self.model, grafted, self.test, self.config, self.images, self.device)
            run.add_to_summary("grafting", {"settings": self.config.as_dict(), **measured, **self.chosen_by})
        kept = run.summary().grafting
        assert kept is not None
        return Grafted(grafted, run, kept.as_dict(), self.plan(grafted, masks(grafted)))

    def guide(
        self,
        target: Run,
        wanted: GuidedConfig,
        restart: bool,
        options: Mapping[str, Any],
        on_epoch: OnEpoch | Sequence[OnEpoch],
    ) -> Grafted:
        """Graft, then go on where the verifier is stuck; `target` becomes the best step."""
        assert self.tuning is not None
        self.inside.enter_context(holding(target.path))
        steps_folder = target.path / "guided"
        if restart:
            target.remove_results()
            (target.path / "guided.jsonl").unlink(missing_ok=True)
            shutil.rmtree(steps_folder, ignore_errors=True)
        elif not steps_folder.exists():
            refuse_foreign(target)
        first = self.graft(Run(steps_folder / "0"), False, {}, on_epoch)
        guided = Guided(
            target, first.run, self.material, self.config, self.tuning, wanted, self.description, device=self.device
        )
        steps = guided.steps(first.model, _say)
        best = best_step(steps, wanted.min_sa)
        _say(f"taken: step {best.number}")
        run = guided.folder_of(best)
        model = load(run.path).to(self.device)
        keep_onnx(target, run.path, run)
        self.description.grafted = describe_sites(model)
        target.write_description(self.description)
        target.save_weights(model)
        with replacing(target.history_path) as part:
            part.write_bytes(b"".join(map(line_of, guided.epochs(steps))))
        write_settings(target.settings_path, "graft", options)
        trained = run.summary().training
        if trained is not None:
            target.add_to_summary("training", trained.as_dict())
        self.chosen_by = {**self.chosen_by, "guided": [step.as_dict() for step in steps]}
        known = target.summary().grafting
        return self._measured(
            model, target, again=known is None or known.as_dict().get("guided") != self.chosen_by["guided"]
        )


def _say(line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True, markup=False)


def _certified_term(text: str | None) -> dict[str, Any]:
    """What --finetune-loss says: the setting of `FineTuning` that it means."""
    if text is None:
        return {}
    name, _, number = text.partition(":")
    try:
        return {{"mtl-ibp": "certified", "sabr": "small_box"}[name]: float(number)}
    except (KeyError, ValueError):
        raise LingraftError(
            f"--finetune-loss {text!r} is not a loss. Write mtl-ibp with its weight, like mtl-ibp:0.01, or sabr with"
            " the share of the ball, like sabr:0.1."
        ) from None
