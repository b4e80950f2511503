"""What `verify` gives: the results of all images, to be looked at, counted and taken elsewhere."""

import csv
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from lingraft.errors import LingraftError
from lingraft.files import replacing
from lingraft.runs import Run
from lingraft.runs.summary import summarize
from lingraft.runs.verdicts import record_of
from lingraft.solver.verifier import Result
from lingraft.work.certify import ImageCertificates

#: Images that a printed table shows; of more, the first and the last ones.
SHOWN = 20

#: heading of the printed table → name in `records`
COLUMNS = {
    "image": "image",
    "label": "label",
    "verdict": "verdict",
    "decided by": "stage",
    "seconds": "seconds",
    "domains": "domains",
    "proof": "proof",
    "reason": "reason",
}
NUMBERS = ("image", "label", "seconds", "domains")


class Results(list[Result]):
    """The results in the order of the images: a list that prints as a table, as HTML in a notebook.

    `summary` has the figures (VA …); `figures` is that and what was asked. `run` is where they are kept. `certificates`
    counts them, where they were asked for, and `certified` is the folder that they are in.
    """

    def __init__(
        self,
        results: Iterable[Result],
        about: dict[str, Any],
        certificates: ImageCertificates | None = None,
        run: Run | None = None,
    ):
        super().__init__(results)
        self.summary = summarize(self, about["timeout"])
        self.figures: dict[str, Any] = {**about, **self.summary.as_dict()}
        self.run, self.certificates = run, None if certificates is None else certificates.tally
        self.certified: Path | None = None
        if certificates is not None:
            self.certified = certificates.folder
            self.figures["certificates"] = certificates.tally.as_dict()

    def records(self) -> list[dict[str, Any]]:
        """A flat record of each image; `lowest` is the least lower bound of its margins at the root."""
        return [_record(result) for result in self]

    def to_pandas(self) -> Any:
        """The records as a `pandas.DataFrame`."""
        try:
            import pandas  # not needed for anything else, so it need not be installed
        except ImportError as error:
            raise LingraftError(
                "pandas is not installed. Install it (pip install pandas), or use .records() or .to_csv(path)."
            ) from error
        return pandas.DataFrame(self.records(), columns=list(_record(Result("", ""))))

    def to_csv(self, path: str | Path) -> Path:
        """Write the records as comma-separated values; what there is nothing to say about is empty. Gives the path."""
        with replacing(Path(path)) as part, open(part, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(_record(Result("", ""))), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.records())
        return Path(path)

    def __repr__(self) -> str:
        headings, rows = self._table()
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        lines = [self._headline()]
        for cells in [headings, *rows] if rows else []:
            aligned = [
                text.rjust(width) if heading in NUMBERS else text.ljust(width)
                for heading, text, width in zip(headings, cells, widths, strict=True)
            ]
            lines.append("  ".join(aligned).rstrip())
        return "\n".join(lines)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        headings, rows = self._table()
        cells = ["".join(f"<td>{escape(text)}</td>" for text in row) for row in rows]
        head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
        return f"<p>{escape(self._headline())}</p>{table}"

    def _headline(self) -> str:
        summary = self.summary
        if not summary.images:
            return "no images"
        counts = [
            f"{count:,} {name}"
            for name, count in [
                ("verified", summary.verified),
                ("falsified", summary.falsified),
                ("unknown", summary.unknown),
                ("misclassified", summary.misclassified),
            ]
            if count
        ]
        images = f"{summary.images:,} image{'s' if summary.images > 1 else ''}"
        text = f"{images}: {', '.join(counts)} (VA {summary.va:.1%}, {self.figures['timeout']:g} s each)"
        return text if summary.proofs_said is None else f"{text}; {summary.proofs_said}"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Headings and cells; columns without a word are left out."""
        records = self.records()
        shown = records if len(records) <= SHOWN else [*records[: SHOWN // 2], *records[-SHOWN // 2 :]]
        rows = [[_shown(record[name]) for name in COLUMNS.values()] for record in shown]
        filled = [any(column) for column in zip(*rows, strict=True)] if rows else [True] * len(COLUMNS)
        rows = [[text for text, is_filled in zip(row, filled, strict=True) if is_filled] for row in rows]
        headings = [heading for heading, is_filled in zip(COLUMNS, filled, strict=True) if is_filled]
        if len(records) > SHOWN:
            rows.insert(SHOWN // 2, ["…"] * len(headings))
        return headings, rows


def _record(result: Result) -> dict[str, Any]:
    bounds: Sequence[float] = result.alpha or result.crown
    record = record_of(result)
    return {
        "image": result.index,
        **{name: record[name] for name in ("label", "eps", "verdict", "reason", "stage", "seconds", "domains")},
        "unstable": sum(result.unstable.values()) if result.unstable else None,
        "neurons": result.neurons,
        "lowest": min(bounds) if bounds else None,
        "proof": result.proof_state,
    }


def _shown(value: Any) -> str:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
