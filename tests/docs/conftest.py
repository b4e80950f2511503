"""Code blocks of the documentation, taken out of it as a reader would copy them."""

import glob
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lingraft.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)

#: The first line of a block that is not executed; readers see it too.
NOT_RUN = re.compile(r"^# not run: (\S.*)$", re.MULTILINE)

#: A command that ends so has done what the page says it does (VNN-COMP's sat, unknown, timeout).
ANSWERS = (0, 10, 11, 12)


@dataclass(frozen=True)
class Block:
    """A fenced code block: its language, its text, and the line of the page where it begins."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def not_run(self) -> str | None:
        """Why it is not executed; None if it is."""
        found = NOT_RUN.match(self.text)
        return found[1] if found else None

    def run(self, namespace: dict[str, Any]) -> None:
        """Execute it in the working directory."""
        if self.language == "python":
            code = compile("\n" * self.line + self.text, str(self.page), "exec")
            exec(code, namespace)
            return
        for command in self.commands():
            done = CliRunner().invoke(app, command, catch_exceptions=False)
            assert done.exit_code in ANSWERS, f"{self.page.name}, lingraft {shlex.join(command)}:\n{done.output}"

    def commands(self) -> Iterator[list[str]]:
        """The arguments of each `lingraft` command of a shell block."""
        for line in self.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                assert words[0] == "lingraft", f"{self.page.name}: {line!r} is not a lingraft command"
                yield [found for word in words[1:] for found in sorted(glob.glob(word)) or [word]]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page that hold Python or commands."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text[: found.start()].count("\n") + 1, found[1], found[2])
        for found in _FENCE.finditer(text)
        if found[1] in ("python", "bash")
    ]


@pytest.fixture(params=PAGES, ids=lambda page: page.name)
def page(request: pytest.FixtureRequest) -> Path:
    """Each page in turn."""
    return request.param


@pytest.fixture
def all_blocks() -> dict[str, list[Block]]:
    """Page → its blocks."""
    return {page.name: blocks(page) for page in PAGES}


@pytest.fixture
def page_blocks(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Block]:
    """The blocks of the page that are to be executed; the working directory is an empty folder."""
    found = [block for block in blocks(page) if block.not_run is None]
    if not found:
        pytest.skip("no code to execute")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LINGRAFT_DATA", str(tmp_path / "data"))  # what a page fetches or copies is for that page
    return found
