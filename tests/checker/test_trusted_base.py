"""docs/certificates.md says how long the checker is: the table there is that of the code."""

import ast
from pathlib import Path

import lingraft.checker

PAGE = Path(__file__).parents[2] / "docs" / "certificates.md"
BEGIN = "<!-- made by tests/checker/test_trusted_base.py -->\n"
END = "<!-- end -->\n"


def table() -> str:
    """All files, their lines, and what they say about themselves in their first sentence."""
    rows, total = [], 0
    for path in sorted(Path(lingraft.checker.__file__).parent.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        about = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        rows.append(f"| `{path.name}` | {len(text.splitlines())} | {about} |")
        total += len(text.splitlines())
    head = ["| file in `checker/` | lines | what it holds |", "| --- | --- | --- |"]
    return "\n".join([*head, *rows, f"| together | {total} | |"]) + "\n"


def test_the_table_is_that_of_the_code():
    content = PAGE.read_text(encoding="utf-8")
    found = content.split(BEGIN)[1].split(END)[0]
    assert found == table(), f"put this between the two comments in {PAGE}:\n{table()}"


if __name__ == "__main__":  # python tests/checker/test_trusted_base.py: write it
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.split(END)[1], encoding="utf-8")
