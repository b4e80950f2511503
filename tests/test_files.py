"""Files that are whole or not there, and noticed when they are damaged."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingraft import LingraftError
from lingraft.files import append_line, read_json, read_lines, remove_dead_parts, remove_parts, replacing, write_json

RECORD = {"name": "ü", "numbers": [1, 2.5, 1e-300, None, True], "inner": {"1": {}}}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(content=st.dictionaries(st.text().filter(lambda name: name != "crc32"), values, max_size=4))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("files")
    write_json(folder / "a.json", content)
    assert read_json(folder / "a.json") == content
    for _ in range(2):
        append_line(folder / "a.jsonl", content)
    assert read_lines(folder / "a.jsonl") == [content, content]


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, RECORD)
    whole = path.read_bytes()
    for place in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            # white space, and the name of the checksum itself, may change without harm
            found = {name: value for name, value in read_json(path).items() if name in RECORD}
        except LingraftError:
            continue
        assert found == RECORD, damaged


def test_a_file_that_a_person_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, RECORD)
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "name": "u"}))
    with pytest.raises(LingraftError, match='remove its "crc32"'):
        read_json(path)
    path.write_text(json.dumps({**RECORD, "name": "u"}))
    assert read_json(path)["name"] == "u"


def test_damaged_lines_are_left_out_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    for number in range(3):
        append_line(path, {"number": number})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b"1", b"7", 1) + lines[2][:-5])
    assert read_lines(path) == [{"number": 0}]
    assert "2 lines are damaged or cut short" in capsys.readouterr().err
    append_line(path, {"number": 3})
    assert read_lines(path) == [{"number": 0}, {"number": 3}]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, RECORD)
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    with pytest.raises(LingraftError, match="cannot write"), replacing(path) as part:
        part.mkdir()  # a file cannot be there
    assert read_json(path) == RECORD


def test_parts_of_killed_processes(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from lingraft.files import replacing\n"
        "with replacing(Path(sys.argv[1]) / 'a.txt') as part:\n    part.write_text('half'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == 9
    (killed,) = tmp_path.iterdir()
    with replacing(tmp_path / "b.txt") as part:
        part.write_text("being written")
        remove_dead_parts(tmp_path)
        assert not killed.exists()
        assert part.exists()
    (tmp_path / "inner").mkdir()
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / ".lock").touch()
    for place in ("", "inner/", "held/"):
        (tmp_path / f"{place}.c.host.1.part").touch()
    assert remove_parts(tmp_path) == 2
    assert sorted(os.listdir(tmp_path / "held")) == [".c.host.1.part", ".lock"]
