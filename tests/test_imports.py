"""Imports stand at the top of files; the few that do not say why."""

import ast
from collections.abc import Iterator
from pathlib import Path

import lingraft

SOURCE = Path(lingraft.__file__).parent


def inside_functions() -> Iterator[tuple[Path, int, str]]:
    """File, line and text of every import inside a function, with the comment above it."""
    for path in SOURCE.rglob("*.py"):
        lines = path.read_text(encoding="utf-8").split("\n")
        seen = set()
        for function in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno not in seen:
                        seen.add(node.lineno)
                        first = node.lineno - 1
                        while lines[first - 1].lstrip().startswith(("from ", "import ", "#")):
                            first -= 1
                        yield path, node.lineno, "\n".join(lines[first : node.end_lineno])


def test_imports_inside_functions_are_few_and_have_a_reason() -> None:
    found = list(inside_functions())
    assert 0 < len(found) < 30
    assert [f"{path.relative_to(SOURCE)}:{line}" for path, line, text in found if "#" not in text] == []
