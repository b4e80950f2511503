"""The summary table: one row for each run and each ε at which it was verified."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lingraft.report.study import Study, Verification
from lingraft.runs.measured import EvaluationFigures, OutcomeFigures
from lingraft.runs.summary import VERDICTS


@dataclass(frozen=True)
class Row:
    """Shares are in [0, 1]; what was not measured is None."""

    run: str
    network: str
    data: str | None
    eps: float | None
    grafted: float
    sa: float | None
    images_sa: int | None
    ra: float | None
    images_ra: int | None
    attack: str | None
    va: float | None
    unr: float | None
    time: float | None
    images: int | None
    limit: float | None
    verified: int | None
    falsified: int | None
    unknown: int | None
    misclassified: int | None

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)

    @property
    def verdicts(self) -> dict[str, int]:
        """How many images have each verdict; {} where none was verified."""
        return {name: getattr(self, name) for name in VERDICTS} if self.images else {}


#: heading → (field, how it is printed, what it means)
COLUMNS: dict[str, tuple[str, str, str]] = {
    "Run": ("run", "text", "run folder"),
    "Network": ("network", "text", "network of the zoo"),
    "Data": ("data", "text", "data set"),
    "ε": ("eps", "eps", "every pixel of [0, 1] may change by this much"),
    "Grafted %": ("grafted", "share", "share of neurons that are linear, a·x + b"),
    "SA %": ("sa", "share", "standard accuracy: test images classified correctly"),
    "RA %": ("ra", "share", "robust accuracy: test images that withstand the attack named in the last column"),
    "VA %": ("va", "share", "verified accuracy: images proven to keep their label under every change within ε"),
    "UNR %": ("unr", "share", "unstable neurons, mean over the images whose neurons were bounded"),
    "Time s": ("time", "seconds", "mean time of a verdict, without images misclassified or attacked successfully"),
    "Images": ("images", "count", "test images verified"),
    "Limit s": ("limit", "limit", "time limit an image"),
    "Attack": ("attack", "text", "attack of RA: steps x restarts"),
}

NUMBERS = ("eps", "share", "seconds", "count", "limit")


def rows(studies: Sequence[Study]) -> list[Row]:
    """A row for each verification of each run, or one without verdicts."""
    table = []
    for study in studies:
        found: list[Verification] | list[None] = study.verifications or [None]
        table += [_row(study, each) for each in found]
    return table


def _row(study: Study, found: Verification | None) -> Row:
    description = study.description
    data, eps = (found.data, found.eps) if found else (description.data, description.eps)
    measured = study.evaluation(data, eps)
    summary = found.summary if found else None
    return Row(
        run=study.name,
        network=description.architecture or "a module of the user",
        data=data,
        eps=eps,
        grafted=study.grafted_share,
        sa=measured.sa if measured else None,
        images_sa=measured.images_sa if measured else None,
        ra=measured.ra if measured else None,
        images_ra=measured.images if measured else None,
        attack=_attack(measured),
        va=summary.va if summary else None,
        unr=summary.unr if summary else None,
        time=summary.time if summary else None,
        images=summary.images if summary else None,
        limit=found.limits[1] if found else None,
        verified=summary.verified if summary else None,
        falsified=summary.falsified if summary else None,
        unknown=summary.unknown if summary else None,
        misclassified=summary.misclassified if summary else None,
    )


def _attack(measured: EvaluationFigures | OutcomeFigures | None) -> str | None:
    if isinstance(measured, EvaluationFigures) and measured.attack == "pgd":
        return f"pgd-{measured.steps}x{measured.restarts}"
    return measured.attack if measured else None


def show(row: Row, heading: str) -> str:
    """A cell as text; "–" for what was not measured."""
    field, kind, _ = COLUMNS[heading]
    value = getattr(row, field)
    if value is None:
        return "–"
    if kind == "share":
        return f"{100 * value:.1f}"
    if kind == "seconds":
        return f"{value:.2f}"
    if kind == "count":
        return f"{value:,}"
    if kind == "limit":
        return f"{value:g}"
    return show_eps(value) if kind == "eps" else str(value)


def show_eps(eps: float) -> str:
    """ε as people write it: 2/255, 0.1."""
    steps = eps * 255
    return f"{round(steps)}/255" if steps >= 0.5 and abs(steps - round(steps)) < 1e-6 else f"{eps:.4g}"
