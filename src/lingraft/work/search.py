"""Method auto: a short search for the setting with the highest verified accuracy, given a standard accuracy.

Every candidate is a run folder of its own, grafted and briefly fine-tuned, then verified on validation images under a
short time limit; the better half is fine-tuned for longer. What is there is not done again, whatever standard accuracy
is asked for.

    search/KEY/settings.json           what the candidates have in common; KEY changes with it
    search/KEY/scores-NAME.npz         scores by each measure of instability
    search/KEY/NAME-PERCENT-EPOCHS/    the candidates, `candidate` in their summary.json says how they did
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from lingraft.attack.evaluation import correct
from lingraft.errors import LingraftError
from lingraft.files import write_json
from lingraft.grafting.candidates import RATIOS, Candidate
from lingraft.grafting.choose import choose, score
from lingraft.grafting.config import INSTABILITIES, FineTuning, GraftingConfig
from lingraft.grafting.fine_tuning import graft_network
from lingraft.grafting.scores import Scores
from lingraft.grafting.significance import SIGNIFICANCES
from lingraft.model.plain import copied
from lingraft.model.surgery import masks
from lingraft.pool.place import Place
from lingraft.runs import ModelDescription, Run
from lingraft.runs.verdicts import digest_weights
from lingraft.solver.conversion import convert
from lingraft.solver.digest import digest_network
from lingraft.solver.request import Limits
from lingraft.training import Destination, TrainingData
from lingraft.work.halving import halving
from lingraft.work.validation import Validation

#: A measure of instability, and a ratio.
Setting = tuple[str, float]


@dataclass(frozen=True)
class SearchConfig:
    """What the search is for, and what it may cost."""

    #: standard accuracy on validation images that the result must have, in (0, 1]
    min_sa: float
    #: epochs of fine-tuning of the candidates of the last round
    epochs: int = 5
    #: validation images to verify, the first ones, and seconds for each
    images: int = 50
    timeout: float = 2.0
    #: processes that verify; None: one for each core
    workers: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.min_sa) and 0 < self.min_sa <= 1):
            raise LingraftError(f"the standard accuracy to keep must lie between 0 and 1, not {self.min_sa}.")
        if min(self.epochs, self.images) < 1:
            raise LingraftError("the search needs at least 1 epoch and 1 image for each candidate.")
        Limits(self.timeout)
        Place(self.workers)


class Search:
    """A search in `run`, whose model is `model`; settings other than ratio and instability are those of `config`."""

    def __init__(
        self,
        run: Run,
        model: nn.Module,
        data: TrainingData,
        config: GraftingConfig,
        tuning: FineTuning,
        wanted: SearchConfig,
        *,
        device: torch.device | str = "cpu",
    ):
        self.run, self.model, self.data = run, model, data
        self.config, self.tuning = replace(config, gradual=False, rescore=False), tuning
        self.wanted, self.device = wanted, device
        self.description: ModelDescription = run.describe().model_copy(
            update={
                "parent": str(run.path),
                "eps": config.eps,
                "clip": data.train.clip,
                "seed": config.seed,
                "grafted": None,
            }
        )
        self.folder = run.path / "search" / self._key()

    def rounds(self, say: Callable[[str], None]) -> list[list[Candidate]]:
        """The candidates of each round of halving; `say` is told of each of them, and of the time left."""
        measures = [self.config.instability]
        if self.config.bounds != "alpha-crown":  # which only the count knows
            measures += [name for name in INSTABILITIES if name != self.config.instability]
        epochs = sorted({max(1, self.wanted.epochs // 4), max(1, self.wanted.epochs // 2), self.wanted.epochs})

        def try_round(settings: Sequence[Setting], epochs: int) -> list[tuple[Setting, Candidate]]:
            found: list[tuple[Setting, Candidate]] = []
            for number, setting in enumerate(settings, 1):
                candidate = self._candidate(*setting, epochs)
                found.append((setting, candidate))
                left = sum(each.seconds for _, each in found) / number * (len(settings) - number)
                say(
                    f"{number} of {len(settings)}, {candidate}, {epochs} epochs: SA {candidate.sa:.2%},"
                    f" VA {candidate.va:.2%}, undecided {candidate.undecided:.2%} on validation images"
                    f" ({_minutes(candidate.seconds)}, of this round about {_minutes(left)} left)"
                )
            return found

        def next_epochs(_: Sequence[Candidate], so_far: int) -> int | None:
            return next((more for more in epochs if more > so_far), None)

        settings = [(measure, ratio) for measure in measures for ratio in RATIOS]
        return halving(settings, epochs[0], try_round, next_epochs, lambda c: (c.sa, c.va))

    def _settings(self) -> dict[str, Any]:
        """All that the figures of a candidate depend on, but its ratio, measure and epochs."""
        shared = {k: v for k, v in self.config.as_dict().items() if k not in ("ratio", "instability")}
        nodes = convert(copied(self.model).cpu().eval(), self.description.input_shape)
        return {
            "weights": digest_weights(self.run),
            "network": digest_network(nodes),
            "grafting": shared,
            "tuning": self._tuning(1).as_dict(),
            "augment": self.data.augment,
            "images": self.wanted.images,
            "timeout": self.wanted.timeout,
        }

    def _tuning(self, epochs: int) -> FineTuning:
        return replace(self.tuning, training=replace(self.tuning.training, epochs=epochs))

    def _key(self) -> str:
        return hashlib.sha256(json.dumps(self._settings(), sort_keys=True).encode()).hexdigest()[:10]

    def _candidate(self, instability: str, ratio: float, epochs: int) -> Candidate:
        """From its folder, or tried now."""
        run = Run(self.folder / f"{instability}-{round(100 * ratio)}-{epochs}")
        known = run.summary().candidate
        if known is not None:
            return Candidate(**known)
        begun = time.monotonic()
        write_json(self.folder / "settings.json", self._settings())
        config = replace(self.config, instability=instability, ratio=ratio)
        mask = choose(self._scores(config), config, masks(self.model))
        model, _ = graft_network(
            self.model, self.data, config, self._tuning(epochs),
            Destination(run, self.description), mask=mask, device=self.device, on_epoch=(),
        )  # fmt: skip
        sa = float(correct(model, self.data.validation, device=self.device).double().mean())
        proven = self._verify(run, model, f"verifying {instability} at {ratio:.0%}")
        found = Candidate(instability, ratio, epochs, sa, *proven, round(time.monotonic() - begun, 1))
        run.add_to_summary("candidate", found.as_dict())
        return found

    def _scores(self, config: GraftingConfig) -> Scores:
        made_for = f"-{round(100 * config.ratio)}" if SIGNIFICANCES[config.significance].of_ratio else ""
        path = self.folder / f"scores-{config.instability}{made_for}.npz"
        if path.exists():
            return Scores.load(path)
        scores = score(self.model, self.data.train, config)
        scores.save(path)
        return scores

    def _verify(self, run: Run, model: nn.Module, what: str) -> tuple[float, float]:
        """Shares of the first validation images that are verified and undecided; verdicts are kept in the run."""
        wanted, seed = self.wanted, self.config.seed
        place = Place(wanted.workers)
        validation = Validation(self.data.validation, self.config.eps, wanted.images, wanted.timeout, place, seed)
        summary = validation.verify(run, model, what)
        assert summary.va is not None
        assert summary.unknown_share is not None
        return summary.va, summary.unknown_share


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
