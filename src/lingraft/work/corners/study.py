"""SA and VA on corner cases and on the regular test set (the paper, Appendix, "Corner test cases")."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from lingraft.attack.evaluation import predictions
from lingraft.data import load as load_data
from lingraft.errors import LingraftError
from lingraft.pool.place import ANYWHERE, Place
from lingraft.progress import progress
from lingraft.runs import Run, load, versions
from lingraft.runs.summary import Summary, summarize
from lingraft.runs.verdicts import digest_weights
from lingraft.solver.request import Limits
from lingraft.work.corners.exemplars import corner_cases, modal_classes
from lingraft.work.corners.scattered import verify_scattered


@dataclass(frozen=True)
class Figures:
    """SA on `images` images, VA on the first of them (`verification.images`); in [0, 1], None where not measured."""

    images: int
    sa: float
    va: float | None
    verification: Summary | None


@dataclass(frozen=True)
class RunFigures:
    """What was measured of one run."""

    run: str
    corners: Figures
    regular: Figures


@dataclass(frozen=True)
class CornerCase:
    """A test image, its label, and the modal classes (more than one in a tie) of either side."""

    index: int
    label: int
    baselines: list[int]
    grafted: list[int]


@dataclass(frozen=True)
class CornerStudy:
    """Corner cases among the first `images` test images, and figures of the runs in the order given."""

    data: str
    eps: float
    timeout: float
    seed: int
    images: int
    corner_cases: list[CornerCase]
    baselines: list[RunFigures]
    grafted: list[RunFigures]

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        means = {"baselines": mean(self.baselines), "grafted": mean(self.grafted)}
        return {**asdict(self), "mean": means, "versions": versions()}


def mean(runs: Sequence[RunFigures]) -> dict[str, dict[str, float | None]]:
    """SA and VA over the runs, on corner cases and on the regular set; VA is None unless every run was verified."""
    means = {}
    for which in ("corners", "regular"):
        figures: list[Figures] = [getattr(run, which) for run in runs]
        verified = [each.va for each in figures if each.va is not None]
        va = fmean(verified) if len(verified) == len(figures) else None
        means[which] = {"sa": fmean(each.sa for each in figures), "va": va}
    return means


def agreed(runs: Sequence[Run], eps: float | None, data: str | None) -> tuple[str, float, int]:
    """Data set, ε and number of classes of all the runs, after checking that they can be compared."""
    descriptions = [run.describe() for run in runs]
    for what, option, values in (
        ("data", "; name one with --data", [each.data_set(data) for each in descriptions]),
        ("eps", "; name one with --eps", [each.radius(eps) for each in descriptions]),
        ("classes", "", [each.classes for each in descriptions]),
        ("input shape", "", [each.input_shape for each in descriptions]),
    ):
        for run, value in zip(runs, values, strict=True):
            if value != values[0]:
                raise LingraftError(
                    f"the runs differ in {what}: {runs[0].path} has {values[0]}, {run.path} has {value}."
                    f" Compare runs of the same kind{option}."
                )
    known: dict[str, Run] = {}
    for run in runs:
        weights = digest_weights(run)
        if weights in known:
            raise LingraftError(f"{known[weights].path} and {run.path} hold the same weights. Name each network once.")
        known[weights] = run
    return descriptions[0].data_set(data), descriptions[0].radius(eps), descriptions[0].classes


def study_corners(
    baselines: Sequence[Run],
    grafted: Sequence[Run],
    *,
    eps: float | None = None,
    data: str | None = None,
    images: int | None = None,
    verify: int = 100,
    regular: int = 100,
    every_run: bool = False,
    limits: Limits | None = None,
    place: Place = ANYWHERE,
    device: torch.device | str = "cpu",
) -> CornerStudy:
    """Find the corner cases among the first `images` test images (default: all), and measure the runs on them.

    SA is measured of every run. VA, on the first `verify` corner cases and on the first `regular` images, is measured
    of the first run on each side, or of every run; 0 leaves it out. Verdicts go to the run folders: see `scattered`.
    `eps` and `data` are by default those of the runs, which must agree.
    """
    if not (baselines and grafted):
        raise LingraftError("there is nothing to compare. Name at least one baseline and one grafted run.")
    if min(verify, regular) < 0:
        raise LingraftError(f"cannot verify {min(verify, regular)} images. Name a number of images, or 0 for none.")
    limits = limits or Limits()
    sides, runs = (baselines, grafted), [*baselines, *grafted]
    data, eps, classes = agreed(runs, eps, data)
    test = load_data(data, "test")
    test = test if images is None else test.take(images)
    baselines[0].describe().check_fits(test, "test")
    predicted: dict[Run, Tensor] = {}
    with progress("predicting", len(runs)) as advance:
        for run in runs:
            predicted[run] = predictions(load(run, device=device), test, device=device)
            advance()
    modal = [modal_classes(torch.stack([predicted[run] for run in side]), classes) for side in sides]
    corners = corner_cases(*modal)
    if not len(corners):
        raise LingraftError(
            f"no corner cases: the modal predictions of both sides agree on all {len(test):,} images."
            " Look at more images, or compare runs that are further apart."
        )

    first, others = min(regular, len(test)), corners[:verify].tolist()

    def measure(run: Run, verified: bool) -> RunFigures:
        results = {}
        if verified and (first or others):
            model = load(run, device=device)
            results = verify_scattered(run, model, data, test, eps, limits, place, first, others)

        def figures(right: Tensor, which: Sequence[int]) -> Figures:
            summary = summarize((results[i] for i in which), limits.timeout) if which and results else None
            return Figures(len(right), int(right.sum()) / len(right), summary.va if summary else None, summary)

        right = predicted[run] == test.labels
        return RunFigures(str(run.path), figures(right[corners], others), figures(right, range(first)))

    return CornerStudy(
        data=data,
        eps=eps,
        timeout=limits.timeout,
        seed=limits.seed,
        images=len(test),
        corner_cases=[
            CornerCase(i, int(test.labels[i]), *(side[i].nonzero().flatten().tolist() for side in modal))
            for i in corners.tolist()
        ],
        baselines=[measure(run, every_run or run is baselines[0]) for run in baselines],
        grafted=[measure(run, every_run or run is grafted[0]) for run in grafted],
    )
