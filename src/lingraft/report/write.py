"""Writing a report of runs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from lingraft.errors import LingraftError
from lingraft.files import remove_dead_parts, replacing
from lingraft.report.page import render
from lingraft.report.study import explained, studies
from lingraft.report.table import Row, comma_separated, latex, markdown
from lingraft.runs import Run

#: suffix of a file with the summary table alone → what is written to it
TABLES: dict[str, Callable[[Sequence[Row]], str]] = {".md": markdown, ".csv": comma_separated, ".tex": latex}


def write_report(runs: str | Path | Run | Sequence[str | Path | Run], path: str | Path) -> Path:
    """Write a report of these runs: a page (.html), or its summary table (.md, .csv, .tex). Gives the path.

    Nothing is measured anew; the page says which command adds a figure that the runs have no data for.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".html", *TABLES):
        raise LingraftError(f"cannot write a report to {path.name}. End the name with .html, {', '.join(TABLES)}.")
    with explained():
        parts = studies([runs] if isinstance(runs, str | Path | Run) else runs)
        table = TABLES.get(suffix)
        text = table([row for study in parts for row in study.rows]) if table else render(parts)
    remove_dead_parts(path.parent)
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
    return path
