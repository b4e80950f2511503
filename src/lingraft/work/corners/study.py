"""SA and VA on corner cases and on the regular test set (the paper, Appendix, "Corner test cases")."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from lingraft.attack.evaluation import predictions
from lingraft.ball import Eps, Radius, eps_name, shown
from lingraft.data import ImageSet
from lingraft.data import load as load_data
from lingraft.device import resolve_device
from lingraft.errors import LingraftError
from lingraft.files import write_json
from lingraft.pool.place import Place
from lingraft.progress import progress
from lingraft.runs import Run, load, versions
from lingraft.runs.holding import holding
from lingraft.runs.summary import Summary, summarize
from lingraft.runs.verdicts import Verdicts, digest_weights
from lingraft.solver.request import Limits, Request
from lingraft.solver.verifier import Result
from lingraft.work.corners.exemplars import corner_cases, modal_classes
from lingraft.work.given import require_same_data
from lingraft.work.keeping import find_verdicts


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
    eps: Radius
    timeout: float
    seed: int
    images: int
    corner_cases: list[CornerCase]
    baselines: list[RunFigures]
    grafted: list[RunFigures]

    @property
    def unknown(self) -> int:
        """Verdicts that more time may change."""
        figures = [part for run in (*self.baselines, *self.grafted) for part in (run.corners, run.regular)]
        return sum(part.verification.unknown for part in figures if part.verification is not None)

    @property
    def means(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """`mean` of either side."""
        return {"baselines": mean(self.baselines), "grafted": mean(self.grafted)}

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {**asdict(self), "eps": eps_name(self.eps), "mean": self.means, "versions": versions()}


def mean(runs: Sequence[RunFigures]) -> dict[str, dict[str, float | None]]:
    """SA and VA over the runs, on corner cases and on the regular set; VA is None unless every run was verified."""
    means = {}
    for which in ("corners", "regular"):
        figures: list[Figures] = [getattr(run, which) for run in runs]
        verified = [each.va for each in figures if each.va is not None]
        va = fmean(verified) if len(verified) == len(figures) else None
        means[which] = {"sa": fmean(each.sa for each in figures), "va": va}
    return means


def agreed(runs: Sequence[Run], eps: Eps | None, data: str | None) -> tuple[str, Radius, int]:
    """Data set, ε and number of classes of all the runs, after checking that they can be compared."""
    descriptions = [run.describe() for run in runs]
    for what, option, values in (
        ("data", "; name one with --data", [each.data_set(data, "test") for each in descriptions]),
        ("eps", "; name one with --eps", [each.radius(eps) for each in descriptions]),
        ("range of values", "", [shown(each.clip) for each in descriptions]),
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
    return descriptions[0].data_set(data, "test"), descriptions[0].radius(eps), descriptions[0].classes


def corners(
    baselines: Sequence[str | Path | Run],
    against: Sequence[str | Path | Run],
    *,
    images: int | None = None,
    verify: int = 100,
    regular: int = 100,
    every_run: bool = False,
    timeout: float = 300.0,
    workers: int | None = None,
    memory: float | None = None,
    eps: Eps | None = None,
    data: str | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> CornerStudy:
    """Find the corner cases among the first `images` test images (default: all), and measure the runs on them.

    SA is measured of every run. VA, on the first `verify` corner cases and on the first `regular` images, is measured
    of the first run on each side, or of every run; 0 leaves it out. Verdicts are kept in the run folders, those on
    corner cases apart; `eps` and `data` are by default those of the runs, which must agree. The study is written to
    `out`, by default corners/corners.json of the first grafted run (of `against`).
    """
    if not (baselines and against):
        raise LingraftError("there is nothing to compare. Name at least one baseline and one grafted run.")
    if min(verify, regular) < 0:
        raise LingraftError(f"cannot verify {min(verify, regular)} images. Name a number of images, or 0 for none.")
    limits, place, where = Limits(timeout, memory, seed=seed), Place(workers), resolve_device(str(device))
    plain, grafted = ([run if isinstance(run, Run) else Run(run) for run in side] for side in (baselines, against))
    verified = [run for side in (plain, grafted) for run in (side if every_run else side[:1]) if verify or regular]
    written = {run.path.resolve(): run for run in (*verified, *(grafted[:1] if out is None else ()))}.values()
    with ExitStack() as inside:
        for run in written:
            run.describe()
            inside.enter_context(holding(run.path))
        data, radius, classes = agreed([*plain, *grafted], eps, data)
        cases = _find_cases(plain, grafted, data, images, classes, where)
        few = Few(min(regular, len(cases.test)), cases.indices[:verify].tolist())

        def measure(run: Run) -> RunFigures:
            results = verify_few(run, data, cases.test, few, radius, limits, place, where) if run in verified else {}
            right = cases.predicted[run] == cases.test.labels
            return RunFigures(
                str(run.path),
                _figures(right[cases.indices], [results[i] for i in few.cases if results], timeout),
                _figures(right, [results[i] for i in range(few.first) if results], timeout),
            )

        study = CornerStudy(
            data=data,
            eps=radius,
            timeout=timeout,
            seed=seed,
            images=len(cases.test),
            corner_cases=cases.described(),
            baselines=[measure(run) for run in plain],
            grafted=[measure(run) for run in grafted],
        )
        write_json(Path(out) if out else grafted[0].path / "corners" / "corners.json", study.as_dict())
        for run in written:
            run.keep_command()
    return study


@dataclass(frozen=True)
class Cases:
    """Test images, what each run predicts of them, the modal classes of either side, and which are corner cases."""

    test: ImageSet
    predicted: dict[Run, Tensor]
    modal: list[Tensor]
    indices: Tensor

    def described(self) -> list[CornerCase]:
        """One by one."""
        return [
            CornerCase(i, int(self.test.labels[i]), *(side[i].nonzero().flatten().tolist() for side in self.modal))
            for i in self.indices.tolist()
        ]


def _find_cases(
    plain: Sequence[Run], grafted: Sequence[Run], data: str, images: int | None, classes: int, device: torch.device
) -> Cases:
    for run in (*plain, *grafted):
        require_same_data(run.describe(), data, "test", asked=True)
    test = load_data(data, "test", clip=plain[0].describe().clip)
    test = test if images is None else test.take(images)
    plain[0].describe().check_fits(test, "test")
    predicted: dict[Run, Tensor] = {}
    with progress("predicting", len(plain) + len(grafted)) as advance:
        for run in (*plain, *grafted):
            predicted[run] = predictions(load(run, device=device), test, device=device)
            advance()
    modal = [modal_classes(torch.stack([predicted[run] for run in side]), classes) for side in (plain, grafted)]
    indices = corner_cases(*modal)
    if not len(indices):
        raise LingraftError(
            f"no corner cases: the modal predictions of both sides agree on all {len(test):,} images."
            " Look at more images, or compare runs that are further apart."
        )
    return Cases(test, predicted, modal, indices)


def _figures(right: Tensor, results: Sequence[Result], timeout: float) -> Figures:
    summary = summarize(results, timeout) if results else None
    return Figures(len(right), int(right.sum()) / len(right), summary.va if summary else None, summary)


@dataclass(frozen=True)
class Few:
    """Test images to verify: the `first` ones, and these corner `cases`, by index."""

    first: int
    cases: list[int]


def verify_few(
    run: Run, data: str, test: ImageSet, few: Few, eps: Radius, limits: Limits, place: Place, device: torch.device
) -> dict[int, Result]:
    """Results by index; the run keeps them, those of corner cases that are not among the first images apart."""
    which = sorted({*range(few.first), *few.cases})
    images, labels = test.pixels(torch.tensor(which)), test.labels[which]
    request = Request(load(run, device=device), images, labels, eps=eps, clip=test.clip)
    verdicts = Verdicts(run, data, request, limits, which, apart={i for i in few.cases if i >= few.first})
    title = f"verifying {run.path}"
    results = find_verdicts(request, limits, place, indices=which, verdicts=verdicts, title=title)
    return dict(zip(which, results, strict=True))
