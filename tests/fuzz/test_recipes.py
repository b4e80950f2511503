"""Recipes, in YAML."""

from functools import cache
from importlib.resources import files
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.errors import LingraftError
from lingraft.work.experiments.recipe import Recipe, parse

FUZZ = settings.get_profile("fuzz")


@cache
def texts() -> list[str]:
    folder = files("lingraft.work.experiments").joinpath("recipes")
    return [file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".yaml")]


@FUZZ
@given(data=st.data())
def test_damaged(fuzzed: Any, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(texts()))
    content = fuzzed.bytes(data, text.encode()).decode(errors="replace")
    fuzzed.survive(lambda: parse(content, Recipe, "x.yaml"))


@FUZZ
@given(data=st.data())
def test_other_values(fuzzed: Any, data: st.DataObject) -> None:
    content = fuzzed.json(data, yaml.safe_load(data.draw(st.sampled_from(texts()))))
    fuzzed.survive(lambda: parse(yaml.safe_dump(content), Recipe, "x.yaml"))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "a: " * 10_000,
        "- " * 100_000,
        "!!python/object/apply:os.system ['true']",
        "a: &a [1]\n" + "".join(f"b{i}: &b{i} [*{'a' if not i else f'b{i - 1}'}{f', *b{i - 1}' * 9 if i else ''}]\n" for i in range(12)),
        "a: &a\n  <<: *a\n",
        "&a [*a]",
        "title: 2001-01-01\n",
        "\x00",
    ],
)  # fmt: skip
def test_hostile(fuzzed: Any, text: str) -> None:
    with pytest.raises(LingraftError):
        fuzzed.survive(lambda: parse(text, Recipe, "x.yaml")) or _refused()


def _refused() -> None:
    raise LingraftError("refused")
