"""Every code block of the documentation is executed, page by page, in the order of the page, in an empty folder."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingraft.attack.registry import FUNCTIONS
from lingraft.data import DATASETS
from lingraft.grafting.significance import SIGNIFICANCES
from lingraft.model.activations import KNOWN
from lingraft.solver.branching import RULES
from lingraft.training import METHODS

#: Blocks that are not executed, by page. Each says why in its first line. Add one here only if it cannot be executed.
NOT_RUN = {"comparison.md": 1, "index.md": 1}

#: before/PAGE.py makes what a page takes for granted: a model, images, a file of somebody else.
BEFORE = Path(__file__).with_name("before")


@pytest.fixture(autouse=True)
def nothing_stays_registered() -> Iterator[None]:
    """What a page registers is for that page."""
    tables: list[dict] = [KNOWN, RULES, DATASETS, FUNCTIONS, METHODS, SIGNIFICANCES]
    before = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)


def test_the_code_of_the_page_runs(page, page_blocks):
    namespace: dict[str, object] = {"__name__": "__main__"}
    before = BEFORE / f"{page.stem}.py"
    if before.exists():
        exec(compile(before.read_text(encoding="utf-8"), str(before), "exec"), namespace)
    for block in page_blocks:
        block.run(namespace)


def test_what_is_not_executed_is_counted_and_says_why(all_blocks):
    found = Counter(name for name, blocks in all_blocks.items() for block in blocks if block.not_run)
    assert found == NOT_RUN


def test_every_preparation_belongs_to_a_page(all_blocks):
    prepared = {f"{path.stem}.md" for path in BEFORE.glob("*.py")}
    assert prepared <= {name for name, blocks in all_blocks.items() if blocks}


def test_long_examples_stay_within_what_the_page_promises(all_blocks):
    """Extending shows each extension in under thirty lines."""
    for block in all_blocks["extending.md"]:
        assert len(block.text.splitlines()) < 30
