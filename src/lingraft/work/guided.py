"""Grafting guided by the verifier: more lines where its proofs are stuck, fewer where a line is not needed.

Every step is a run folder of its own, fine-tuned from the step before; the run that they are in holds the best one.

    RUN/guided.jsonl                     what the steps did, in order
    RUN/guided/0/                        the network that was grafted first
    RUN/guided/NUMBER/                   the steps
    RUN/guided/mask-NUMBER.safetensors   the neurons that are lines in a step
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.attack.evaluation import correct
from lingraft.errors import LingraftError
from lingraft.files import append_line, read_json, read_lines, write_json
from lingraft.grafting.config import FineTuning, GraftingConfig
from lingraft.grafting.instability import would_be_unstable
from lingraft.grafting.mask_file import load_mask, save_mask
from lingraft.grafting.open_harm import OpenHarm
from lingraft.grafting.ranking import flatten, rank
from lingraft.grafting.selection import select
from lingraft.model.plain import copied
from lingraft.model.sites import grafted_activations
from lingraft.model.surgery import masks
from lingraft.pool.place import Place
from lingraft.runs import ModelDescription, Run, load
from lingraft.runs.verdicts import digest_weights
from lingraft.solver.request import Limits
from lingraft.training import Destination, TrainingData
from lingraft.work.given import keep_onnx
from lingraft.work.tune import tune_and_keep
from lingraft.work.validation import Validation


@dataclass(frozen=True)
class GuidedConfig:
    """How far to go, and what a step may cost."""

    #: steps that graft more, at most, and the share of all neurons that each of them grafts
    steps: int
    share: float = 0.01
    #: standard accuracy on validation images below which there is no further step; None: any will do
    min_sa: float | None = None
    #: whether to try to give lines back at the end
    ungraft: bool = False
    #: epochs of fine-tuning of a step
    epochs: int = 5
    #: training images to look for undecided ones, and as many validation images; seconds for each
    images: int = 50
    timeout: float = 2.0
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise LingraftError(f"--guided must be a number of steps, 0 or more, not {self.steps}.")
        if not (math.isfinite(self.share) and 0 < self.share <= 1):
            raise LingraftError(f"the share of neurons of a step must be above 0 and at most 1, not {self.share}.")
        if self.min_sa is not None and not 0 < self.min_sa <= 1:
            raise LingraftError(f"the standard accuracy to keep must lie between 0 and 1, not {self.min_sa}.")
        if min(self.epochs, self.images) < 1:
            raise LingraftError("a guided step needs at least 1 epoch and 1 image.")
        Limits(self.timeout)
        Place(self.workers)


@dataclass(frozen=True)
class Step:
    """What a step did, and what came of it on validation images; shares in [0, 1]."""

    #: 0 is the network that it began with
    number: int
    did: str
    run: str
    grafted: float
    sa: float
    va: float
    undecided: float
    #: whether the next step went on from it
    kept: bool = True

    def __str__(self) -> str:
        kept = "" if self.kept else "; not kept"
        return (
            f"step {self.number}, {self.did}: {self.grafted:.1%} grafted, SA {self.sa:.2%}, VA {self.va:.2%},"
            f" undecided {self.undecided:.2%} on validation images{kept}"
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)


def best_step(steps: Sequence[Step], min_sa: float | None) -> Step:
    """The highest VA among those with the SA that is asked for, then the highest SA, then the fewest lines.

    Where none has that SA it is the first of all, which was asked for without it.
    """
    good = [step for step in steps if step.kept and (min_sa is None or step.sa >= min_sa)]
    return max(good, key=lambda step: (step.va, step.sa, -step.grafted), default=steps[0])


class Guided:
    """Steps in the folder `run`, which begin with the grafted network of `first`."""

    def __init__(
        self,
        run: Run,
        first: Run,
        data: TrainingData,
        config: GraftingConfig,
        tuning: FineTuning,
        wanted: GuidedConfig,
        description: ModelDescription,
        *,
        device: torch.device | str = "cpu",
    ):
        self.run, self.first, self.data, self.wanted, self.device = run, first, data, wanted, device
        self.config = replace(config, gradual=False, rescore=False)
        self.tuning = replace(tuning, training=replace(tuning.training, epochs=wanted.epochs))
        self.description = description
        place = Place(wanted.workers)
        self.validation, self.training = (
            Validation(images, config.eps, wanted.images, wanted.timeout, place, config.seed, name)
            for images, name in ((data.validation, "validation"), (data.train, "training"))
        )

    def steps(self, model: nn.Module, say: Callable[[str], None]) -> list[Step]:
        """All steps, the first one being `model` as it is; `say` is told of each.

        What is there is not done again; steps with other settings are refused.
        """
        self._require_same()
        done = [Step(**record) for record in read_lines(self.run.path / "guided.jsonl")]
        for known in done:
            say(str(known))
        if not done:
            done.append(self._measured(0, "as it was grafted", self.first, model))
            self._keep(done[-1], say)
        while done[-1].kept and len(done) <= self.wanted.steps and done[-1].did != _UNGRAFTED:
            here = self.folder_of(done[-1])
            step = self._more(len(done), here, self._load(here))
            if step is None:
                say(f"no image of {self.training.images} training images is undecided: there is nothing to graft for")
                break
            low = self.wanted.min_sa is not None and step.sa < self.wanted.min_sa
            done.append(replace(step, kept=not low))
            self._keep(done[-1], say)
        if self.wanted.ungraft and done[-1].did != _UNGRAFTED:
            before = best_step(done, self.wanted.min_sa)
            fewer = self._fewer(len(done), self.folder_of(before))
            if fewer is None:
                say("every line would be an unstable ReLU for some image: none is given back")
            else:
                done.append(replace(fewer, kept=fewer.va >= before.va and fewer.sa >= before.sa))
                self._keep(done[-1], say)
        return done

    def folder_of(self, step: Step) -> Run:
        """The run of a step, wherever the folder is now."""
        return Run(self.run.path / "guided" / str(step.number))

    def epochs(self, steps: Sequence[Step]) -> list[dict[str, Any]]:
        """The epochs of all steps, kept or not, as one history."""
        lines = [line for step in steps for line in read_lines(self.folder_of(step).history_path)]
        return [{**line, "epoch": number} for number, line in enumerate(lines, 1)]

    def _require_same(self) -> None:
        """What the steps depend on is kept beside them."""
        path = self.run.path / "guided" / "settings.json"
        named = ("share", "epochs", "images", "timeout")
        settings = {"weights": digest_weights(self.first), **{name: getattr(self.wanted, name) for name in named}}
        if not path.exists():
            write_json(path, settings)
        elif read_json(path) != settings:
            raise LingraftError(
                f"{self.run.path} has guided steps with other settings: {read_json(path)}, now {settings}."
                " Choose another folder (-o), or start over in this one (--restart)."
            )

    def _keep(self, step: Step, say: Callable[[str], None]) -> None:
        append_line(self.run.path / "guided.jsonl", step.as_dict())
        say(str(step))

    def _load(self, run: Run) -> nn.Module:
        return load(run.path).to(self.device)

    def _more(self, number: int, run: Run, model: nn.Module) -> Step | None:
        """Graft the neurons that cost most on undecided training images; None if there are none of these."""

        def choose() -> dict[str, Tensor] | None:
            stuck = self.training.undecided(run, model, "looking for undecided images")
            return None if stuck is None else self._costliest(OpenHarm(self.config.eps).score(model, stuck), model)

        mask = self._mask(number, choose)
        return None if mask is None else self._tuned(number, "more lines where proofs are stuck", run, model, mask)

    def _costliest(self, harm: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor] | None:
        """The mask with a share more of the neurons, those with the highest harm above 0; None if none has any."""
        grafted = masks(model)
        present, neurons = (int(sum(f(m) for m in grafted.values())) for f in (torch.sum, torch.numel))
        count = min(round(self.wanted.share * neurons), int((flatten(harm) > 0).sum()))
        if not count:
            return None
        ranks = rank(harm)
        return select(ranks, ranks, (present + count) / neurons, (math.inf,), grafted)

    def _fewer(self, number: int, run: Run) -> Step | None:
        """Give neurons back that would be stable ReLUs for all images that are looked at; None if there are none."""
        model = copied(self._load(run))
        few = self.data.train.take(min(self.config.bound_images, len(self.data.train)))

        def choose() -> dict[str, Tensor] | None:
            unstable = would_be_unstable(model, few, self.config.eps, self.config.bounds)
            kept = {name: mask.cpu() & (unstable[name] > 0) for name, mask in masks(model).items()}
            same = all(bool((kept[name] == mask.cpu()).all()) for name, mask in masks(model).items())
            return None if same else kept

        mask = self._mask(number, choose)
        if mask is None:
            return None
        for name, site in grafted_activations(model).items():
            site.ungraft(~mask[name])
        return self._tuned(number, _UNGRAFTED, run, model, mask)

    def _mask(self, number: int, choose: Callable[[], dict[str, Tensor] | None]) -> dict[str, Tensor] | None:
        """That of a step that was stopped, or a new one, which is kept before anything is trained."""
        path = self.run.path / "guided" / f"mask-{number}.safetensors"
        if path.exists():
            return load_mask(path)
        mask = choose()
        if mask is not None:
            save_mask(path, mask)
        return mask

    def _tuned(self, number: int, did: str, before: Run, model: nn.Module, mask: Mapping[str, Tensor]) -> Step:
        target = Run(self.run.path / "guided" / str(number))
        keep_onnx(target, before.path, before)
        description = self.description.model_copy(update={"parent": str(before.path), "grafted": None})
        tuned, _ = tune_and_keep(
            model, self.data, self.config, self.tuning, Destination(target, description),
            mask=mask, device=self.device, on_epoch=(),
        )  # fmt: skip
        return self._measured(number, did, target, tuned)

    def _measured(self, number: int, did: str, run: Run, model: nn.Module) -> Step:
        sa = float(correct(model, self.data.validation, device=self.device).double().mean())
        summary = self.validation.verify(run, model, f"verifying step {number}")
        assert summary.va is not None
        assert summary.unknown_share is not None
        grafted = masks(model)
        share = float(flatten(grafted).mean())
        return Step(number, did, str(run.path), share, sa, summary.va, summary.unknown_share)


_UNGRAFTED = "lines given back that no proof needs"
