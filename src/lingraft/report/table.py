"""The summary table, one row for each run and each ε at which it was verified, and how it is printed.

Imports nothing heavy: the commands that print the table import this file at their top.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Row:
    """Shares are in [0, 1]; what was not measured is None."""

    run: str
    network: str
    data: str | None
    eps: float | str | None
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
    #: verified images with a certificate, with one that the checker accepted, and with one that it did not
    proofs: int | None
    proofs_checked: int | None
    proofs_rejected: int | None

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)

    @property
    def verdicts(self) -> dict[str, int | None]:
        """How many images have each verdict; {} where none was verified."""
        counts = ("verified", "falsified", "unknown", "misclassified")
        return {name: getattr(self, name) for name in counts} if self.images else {}

    @property
    def proof(self) -> str | None:
        """What became of the proofs of the verified images; None where none was written."""
        if not self.proofs:
            return None
        if not self.proofs_checked and not self.proofs_rejected:
            return f"{self.proofs:,} of {self.verified:,} written"
        rejected = f", {self.proofs_rejected:,} rejected" if self.proofs_rejected else ""
        return f"{self.proofs_checked:,} of {self.verified:,} checked{rejected}"


#: heading → (field, how it is printed, what it means)
COLUMNS: dict[str, tuple[str, str, str]] = {
    "Run": ("run", "text", "run folder"),
    "Network": ("network", "text", "network of the zoo"),
    "Data": ("data", "text", "data set"),
    "ε": ("eps", "eps", "every pixel of [0, 1], or feature, may change by this much"),
    "Grafted %": ("grafted", "share", "share of neurons that are linear, a·x + b"),
    "SA %": ("sa", "share", "standard accuracy: test images classified correctly"),
    "RA %": ("ra", "share", "robust accuracy: test images that withstand the attack named in the last column"),
    "VA %": ("va", "share", "verified accuracy: images proven to keep their label under every change within ε"),
    "UNR %": ("unr", "share", "unstable neurons, mean over the images whose neurons were bounded"),
    "Time s": ("time", "seconds", "mean time of a verdict, without images misclassified or attacked successfully"),
    "Images": ("images", "count", "test images verified"),
    "Limit s": ("limit", "limit", "time limit for each image"),
    "Proof": (
        "proof",
        "text",
        "proofs of verified images that were written, or also checked by the independent checker",
    ),
    "Attack": ("attack", "text", "attack of RA: steps x restarts"),
}

NUMBERS = ("eps", "share", "seconds", "count", "limit")


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


def show_eps(eps: float | str) -> str:
    """ε as people write it: 2/255, 0.1; of a tensor, its name."""
    if isinstance(eps, str):
        return eps
    steps = eps * 255
    return f"{round(steps)}/255" if steps >= 0.5 and abs(steps - round(steps)) < 1e-6 else f"{eps:.4g}"


def markdown(rows: Sequence[Row]) -> str:
    """A pipe table, and what its columns mean."""
    headings = list(COLUMNS)
    lines = [
        "| " + " | ".join(headings) + " |",
        "| " + " | ".join("---:" if COLUMNS[name][1] in NUMBERS else "---" for name in headings) + " |",
        *("| " + " | ".join(show(row, name).replace("|", "\\|") for name in headings) + " |" for row in rows),
        "",
        *(f"- {name}: {meaning}" for name, (_, _, meaning) in COLUMNS.items()),
    ]
    return "\n".join(lines) + "\n"


def comma_separated(rows: Sequence[Row]) -> str:
    """All fields as they are, shares in [0, 1]; an empty cell is what was not measured."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.as_dict() for row in rows)
    return buffer.getvalue()


def latex(rows: Sequence[Row]) -> str:
    """A `tabular` for a paper; it needs the package booktabs."""
    headings = list(COLUMNS)
    columns = "".join("r" if COLUMNS[name][1] in NUMBERS else "l" for name in headings)
    lines = [
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        " & ".join(map(escaped, headings)) + " \\\\",
        "\\midrule",
        *(" & ".join(escaped(show(row, name)) for name in headings) + " \\\\" for row in rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


_LATEX = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "–": "--",
    "ε": "$\\epsilon$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def escaped(text: str) -> str:
    """Text for LaTeX."""
    return "".join(_LATEX.get(character, character) for character in text)
