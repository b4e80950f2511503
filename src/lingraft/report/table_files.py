"""The summary table as Markdown, CSV and LaTeX."""

import csv
import io
from collections.abc import Sequence
from dataclasses import fields

from lingraft.report.table import COLUMNS, NUMBERS, Row, show


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
    return "".join(_LATEX.get(character, character) for character in text)
