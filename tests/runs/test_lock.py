"""One process at a time in a run folder."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lingraft import LingraftError
from lingraft.cli import app
from lingraft.runs.lock import NAME, held

pytestmark = pytest.mark.slow

# Holds a folder and says so, then waits for a line on standard input, or for its end.
HOLDER = """
import sys
from pathlib import Path
from lingraft.command import running
from lingraft.runs.lock import held

with running("lingraft train --data digits"), held(Path(sys.argv[1])) as before:
    print("held" if before is None else f"held after {before.process}", flush=True)
    sys.stdin.readline()
"""


def start(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("held")
    return process


def test_the_second_process_is_told_who_is_first(tmp_path: Path) -> None:
    first = start(tmp_path)
    try:
        with pytest.raises(
            LingraftError, match=f"in use by process {first.pid} on .*lingraft train --data digits.*since"
        ):
            held(tmp_path).__enter__()
    finally:
        first.communicate("\n")
    assert list(tmp_path.iterdir()) == []
    with held(tmp_path) as before:
        assert before is None


def test_the_lock_of_a_killed_process_is_none(tmp_path: Path) -> None:
    first = start(tmp_path)
    first.kill()
    first.communicate()
    # the number may belong to another process by now: it is not the number that holds the lock
    record = json.loads((tmp_path / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps({**record, "process": os.getpid()}))
    with held(tmp_path) as before:
        assert before is not None
        assert before.process == os.getpid()
        assert "lingraft train" in str(before)
    with held(tmp_path) as before:
        assert before is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"process": 1}', b"[" * 60000, b"\xff\x00"])
def test_a_lock_file_of_any_content_does_no_harm(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with held(tmp_path) as before:
        assert before is None
        other = subprocess.run(
            [sys.executable, "-c", HOLDER, str(tmp_path)], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert f"in use by process {os.getpid()}" in other.stderr


def test_held_twice_in_one_process(tmp_path: Path) -> None:
    with held(tmp_path), held(tmp_path / "." / ".." / tmp_path.name):
        assert (tmp_path / NAME).exists()
    assert not (tmp_path / NAME).exists()


def test_a_folder_made_for_nothing_is_removed(tmp_path: Path) -> None:
    with held(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert not (tmp_path / "a" / "b").exists()
    with held(tmp_path / "c"):
        (tmp_path / "c" / "result").touch()
    assert (tmp_path / "c" / "result").exists()


def test_a_child_that_outlives_its_parent_does_not_hold_the_folder(tmp_path: Path) -> None:
    code = HOLDER.replace(
        "sys.stdin.readline()",
        "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.readline()",
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    child = int(process.stdout.readline())
    try:
        process.kill()
        process.wait()
        with held(tmp_path) as before:
            assert before is not None
    finally:
        os.kill(child, signal.SIGKILL)


def test_where_there_are_no_locks_it_goes_on_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with held(tmp_path) as before:
        assert before is None
    assert "cannot be locked (No locks available)" in capsys.readouterr().err


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(LingraftError, match="cannot write in"):
        held(tmp_path / "run").__enter__()


def test_commands_hold_the_run(tmp_path: Path) -> None:
    train = ["train", "--data", "digits", "--model", "digits-cnn", "--epochs", "1", "-o", str(tmp_path / "run")]
    assert CliRunner().invoke(app, train, catch_exceptions=False).exit_code == 0
    assert not (tmp_path / "run" / NAME).exists()
    run, other = str(tmp_path / "run"), str(tmp_path / "other")
    holders = [start(tmp_path / name) for name in ("run", "other")]
    try:
        for command in (
            train,
            ["evaluate", run],
            ["score", run],
            ["select", run],
            ["verify", run],
            ["graft", run, "--epochs", "1", "-o", other],
            ["demo", "-o", other],
        ):
            result = CliRunner().invoke(app, command)
            assert isinstance(result.exception, LingraftError), (command, result.output)
            assert "is in use by process" in str(result.exception), command
        assert CliRunner().invoke(app, ["report", run, "-o", str(tmp_path / "r.html")]).exit_code == 0  # only reads
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()
    (tmp_path / "run" / ".summary.json.1.part").write_text("{")
    done = subprocess.run(
        [sys.executable, "-m", "lingraft", *train],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert f"process {holders[0].pid} on" in done.stderr
    assert "removed 1 file that was only half written" in done.stderr
    assert "trained already" in done.stdout
