"""model.json: what it says is checked where it is read."""

import json
from pathlib import Path

import pytest
from small_runs import untrained_run

import lingraft
from lingraft import LingraftError


@pytest.mark.parametrize("content", ["", "{", "[]", '{"architecture": "digits-cnn"}', '{"format": 1, "x": 2}'])
def test_a_damaged_description(tmp_path: Path, content: str) -> None:
    untrained_run(tmp_path)
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(LingraftError, match=r"model\.json"):
        lingraft.load(tmp_path)


def test_a_newer_format(tmp_path: Path) -> None:
    untrained_run(tmp_path)
    content = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**content, "format": 99, "crc32": None}))
    with pytest.raises(LingraftError, match="99"):
        lingraft.load(tmp_path)
