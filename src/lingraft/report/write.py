"""Writing a report of runs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from lingraft.errors import LingraftError
from lingraft.files import remove_dead_parts, replacing
from lingraft.report.page import page
from lingraft.report.study import Study, explained, studies
from lingraft.report.table import rows
from lingraft.report.table_files import comma_separated, latex, markdown
from lingraft.runs import Run

#: suffix of the file → what is written to it
FORMATS: dict[str, Callable[[Sequence[Study]], str]] = {
    ".html": page,
    ".md": lambda found: markdown(rows(found)),
    ".csv": lambda found: comma_separated(rows(found)),
    ".tex": lambda found: latex(rows(found)),
}


def write_report(runs: str | Path | Run | Sequence[str | Path | Run], path: str | Path) -> Path:
    """Write a report of these runs: a page (.html), or its summary table (.md, .csv, .tex). Gives the path.

    Nothing is measured anew; the page says which command adds a figure that the runs have no data for.
    """
    if isinstance(runs, str | Path | Run):
        runs = [runs]
    path = Path(path)
    write = FORMATS.get(path.suffix.lower())
    if write is None:
        raise LingraftError(f"cannot write a report to {path.name}. End the name with {', '.join(FORMATS)}.")
    with explained():
        text = write(studies(runs))
    remove_dead_parts(path.parent)
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
    return path
