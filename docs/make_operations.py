"""Writes the table of operations.md from the code: python docs/make_operations.py"""

from pathlib import Path

from lingraft.work.operations import rows

PAGE = Path(__file__).parent / "operations.md"
BEGIN = "| operation |"


def table() -> list[str]:
    """The lines of the table."""
    columns = ("verified", "grafted", "certified", "exported", "certificate")
    lines = [
        "| operation | torch | ONNX | verified | grafted | certified training | exported | certificate | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows():
        names = (", ".join(f"`{name}`" for name in names) for names in (row.torch, row.onnx))
        marks = ("yes" if getattr(row, column) else "–" for column in columns)
        lines.append(f"| {row.name} | {' | '.join(names)} | {' | '.join(marks)} | {row.note} |")
    return lines


def written(page: str) -> list[str]:
    """The lines of the table as the page has them."""
    return [line for line in page.splitlines() if line.startswith("| ")]


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition("\n\n")[2]
    PAGE.write_text(before + "\n".join(table()) + "\n\n" + after)
