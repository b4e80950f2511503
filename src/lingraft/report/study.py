"""What a report knows of runs: read from their folders, nothing is measured anew."""

import shlex
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lingraft.ball import eps_name
from lingraft.errors import LingraftError
from lingraft.files import read_lines
from lingraft.grafting.scores import Scores
from lingraft.model.grafted_activation import unpack
from lingraft.report.table import Row, show_eps
from lingraft.runs import Run, load_tensors
from lingraft.runs.measured import EvaluationFigures, OutcomeFigures
from lingraft.runs.summary import Summary, in_time, summarize
from lingraft.runs.verdicts import digest_weights, result_of
from lingraft.solver.verifier import Result


@dataclass(frozen=True)
class Verification:
    """The verdicts on images of one data set at one ε, in the order of the images; what each was made under beside."""

    data: str
    #: a number, or the name of a tensor
    eps: float | str
    results: list[Result]
    records: list[dict[str, Any]]

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and highest time limit in seconds that an image had."""
        limits = [float(record["timeout"]) for record in self.records]
        return min(limits), max(limits)

    @cached_property
    def summary(self) -> Summary:
        """VA, UNR, Time …"""
        return summarize(self.results, self.limits[1])


class Study:
    """One run of a report, under a short name that no other run of it has."""

    def __init__(self, run: Run, name: str):
        self.run, self.name = run, name
        self.description = run.describe()
        self.summary = run.summary()
        #: the run this one was grafted from, if it is part of the report
        self.parent: Study | None = None

    @cached_property
    def verifications(self) -> list[Verification]:
        """Of the weights that the run has now, by data set and ε. An image that was done twice counts once.

        A run whose weights were not kept, to save room, is one of the weights that the last verdict is about. Verdicts
        that name another network than the last one does are left out: the same weights in changed code.
        """
        if not self.run.verdicts_path.exists():
            return []
        records = list(read_lines(self.run.verdicts_path))
        there = self.run.weights_path.exists()
        weights = digest_weights(self.run) if there else records[-1].get("weights") if records else None
        records = [record for record in records if record.get("weights") == weights]
        network = records[-1].get("network") if records else None
        #: (data set, ε) → image → its record and result
        places: dict[tuple[str, float | str], dict[int, tuple[dict[str, Any], Result]]] = {}
        for record in records:
            try:
                if record.get("network") not in (None, network):
                    continue
                # one that came after its limit is undecided here, as in every count
                result = in_time(result_of(record), float(record["timeout"]))
                record = {**record, "verdict": result.verdict, "reason": result.reason}
                result.against = [int(label) for label in record["crown"]]
                images = places.setdefault((record["data"], _eps(record["eps"])), {})
                about, before = images.get(result.index, (record, result))
                other = about.get("network") != network
                if result.verdict != "unknown" or before.verdict == "unknown" or other:
                    images[result.index] = record, result
            except (KeyError, TypeError, ValueError, AttributeError):
                continue  # damaged; `lingraft verify` would do this image again
        return [
            Verification(data, eps, [images[i][1] for i in sorted(images)], [images[i][0] for i in sorted(images)])
            for (data, eps), images in sorted(places.items(), key=lambda place: (place[0][0], _order(place[0][1])))
        ]

    @cached_property
    def scores(self) -> Scores | None:
        """Scores of the network itself or, of a grafted run, those that its neurons were chosen by."""
        return Scores.load(self.run.scores_path) if self.run.scores_path.exists() else None

    @cached_property
    def grafted_scores(self) -> Scores | None:
        """Of a grafted run: scores of the grafted network itself."""
        path = self.run.grafted_scores_path
        return Scores.load(path) if self.grafted_share and path.exists() else None

    @cached_property
    def test_scores(self) -> Scores | None:
        """Scores of the run's own network on test images."""
        return Scores.load(self.run.test_scores_path) if self.run.test_scores_path.exists() else None

    @cached_property
    def masks(self) -> dict[str, Tensor]:
        """Site → which neurons are grafted."""
        return {site: mask for site, (mask, _) in self._grafted.items()}

    @cached_property
    def lines(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Site → slopes and intercepts of the grafted neurons that are not pruned."""
        return {site: lines for site, (_, lines) in self._grafted.items()}

    @cached_property
    def _grafted(self) -> dict[str, tuple[Tensor, tuple[Tensor, Tensor]]]:
        if not (self.grafted_share and self.run.weights_path.exists()):
            return {}
        tensors, _ = load_tensors(self.run.weights_path)
        try:
            return {
                site.name: (
                    unpack(tensors[f"{site.name}.mask"], site.shape),
                    (tensors[f"{site.name}.slope"], tensors[f"{site.name}.intercept"]),
                )
                for site in self.description.grafted or []
            }
        except (KeyError, ValueError, RuntimeError) as error:
            raise LingraftError(
                f"{self.run.weights_path} does not hold the masks of model.json. Restore it."
            ) from error

    @cached_property
    def grafted_share(self) -> float:
        """Grafted of all neurons of the network, in [0, 1]."""
        sites = self.description.grafted or []
        neurons = sum(int(torch.Size(site.shape).numel()) for site in sites)
        return sum(site.grafted for site in sites) / neurons if neurons else 0.0

    def evaluation(self, data: str | None, eps: float | str | None) -> EvaluationFigures | OutcomeFigures | None:
        """SA and RA on this data at this ε, by the strongest attack that was tried; None if there are none.

        Where only `lingraft graft` measured, what it measured.
        """
        tried = [
            figures for figures in self.summary.evaluation.values() if figures.data == data and _same(figures.eps, eps)
        ]
        if tried:
            return max(tried, key=lambda figures: (figures.steps * figures.restarts, figures.images))
        grafting = self.summary.grafting
        if grafting is not None and data == self.tests and _same(grafting.settings.get("eps"), eps):
            return grafting.after
        return None

    @property
    def tests(self) -> str | None:
        """The data set with the test images: what the run says, or of a file without any, what it was evaluated on."""
        of = self.description
        if of.test_data is not None or of.data_sha256 is None or not self.summary.evaluation:
            return of.test_data or of.data
        measured = [figures.data for figures in self.summary.evaluation.values()]
        return of.data if of.data in measured else measured[-1]

    @property
    def eps(self) -> float | str | None:
        """ε of the run: a number, or the name of a tensor."""
        return None if self.description.eps is None else eps_name(self.description.eps)

    @property
    def rows(self) -> list[Row]:
        """Its rows of the summary table: one for each verification, or one without verdicts."""
        return [self._row(each) for each in self.verifications] or [self._row(None)]

    def _row(self, verification: Verification | None) -> Row:
        data, eps = (verification.data, verification.eps) if verification else (self.tests, self.eps)
        measured = self.evaluation(data, eps)
        summary = verification.summary if verification else None
        origin = self.description.origin
        return Row(
            run=self.name,
            network=self.description.architecture or (origin.place if origin else "a module of the user"),
            data=data,
            eps=eps,
            grafted=self.grafted_share,
            sa=measured.sa if measured else None,
            images_sa=measured.images_sa if measured else None,
            ra=measured.ra if measured else None,
            images_ra=measured.images if measured else None,
            attack=_attack(measured),
            va=summary.va if summary else None,
            unr=summary.unr if summary else None,
            time=summary.time if summary else None,
            images=summary.images if summary else None,
            limit=verification.limits[1] if verification else None,
            verified=summary.verified if summary else None,
            falsified=summary.falsified if summary else None,
            unknown=summary.unknown if summary else None,
            misclassified=summary.misclassified if summary else None,
            proofs=summary.proofs if summary else None,
            proofs_checked=summary.proofs_checked if summary else None,
            proofs_rejected=summary.proofs_rejected if summary else None,
        )

    @property
    def unmeasured(self) -> dict[str, str]:
        """What its rows lack → the command that adds it."""
        missing = {}
        for row in self.rows:
            if row.data is not None and row.eps is not None and self.evaluation(row.data, row.eps) is None:
                options = ["--eps", show_eps(row.eps)] if row.eps != self.eps else []
                options += ["--data", row.data] if row.data != self.tests else []
                what = f"{self.name} has no SA and RA at ε = {show_eps(row.eps)}."
                missing[what] = self.command("evaluate", *options)
        return missing

    def command(self, name: str, *options: str) -> str:
        """A command of lingraft on this run, as one would type it."""
        origin = self.description.origin
        own = ["--model", origin.place] if origin is not None and self.description.needs_code else []
        return shlex.join(["lingraft", name, str(self.run.path), *own, *options])


def _attack(measured: EvaluationFigures | OutcomeFigures | None) -> str | None:
    if isinstance(measured, EvaluationFigures) and measured.attack == "pgd":
        return f"pgd-{measured.steps}x{measured.restarts}"
    return measured.attack if measured else None


def _same(a: float | str | None, b: float | str | None) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return a is not None and b is not None and abs(a - b) < 1e-9


def _eps(recorded: Any) -> float | str:
    """A number, or the name of a tensor; a text that is neither is damage."""
    return recorded if isinstance(recorded, str) and "#" in recorded else float(recorded)


def _order(eps: float | str) -> tuple[bool, float | str]:
    """Numbers first."""
    return isinstance(eps, str), eps


@contextmanager
def explained() -> Iterator[None]:
    """Inside, a run whose files can be read but say something else than lingraft writes is a LingraftError."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError, ZeroDivisionError) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error}, {Path(where.filename).name}:{where.lineno}"
        raise LingraftError(
            f"summary.json or verdicts.jsonl of a run does not say what lingraft writes there ({what}). Restore it;"
            " if nobody changed it, please report this."
        ) from error


def studies(runs: Sequence[str | Path | Run]) -> list[Study]:
    """The runs in the order given, each once, with their parents among them; a folder that is no run is an error."""
    folders: dict[Path, Run] = {}
    for each in runs:
        run = each if isinstance(each, Run) else Run(each)
        folders.setdefault(run.path.resolve(), run)
    if not folders:
        raise LingraftError("there are no runs to report on. Name at least one run folder.")
    names = _short_names(list(folders))
    known = {path: Study(run, names[path]) for path, run in folders.items()}
    for path, study in known.items():
        if study.description.parent is not None:
            parent = Path(study.description.parent)
            # a run that was moved together with its parent still finds it
            study.parent = known.get(parent.resolve()) or known.get(path.parent / parent.name)
    return list(known.values())


def _short_names(paths: list[Path]) -> dict[Path, str]:
    """The last parts of each path, as few as tell them apart."""
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = {path: "/".join(path.parts[-parts:]) for path in paths}
        if len(set(names.values())) == len(paths):
            return names
    return {path: str(path) for path in paths}
