"""`lingraft verify`, end to end; killed, it goes on where it was."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import lingraft
from lingraft import LingraftError
from lingraft.cli import app
from lingraft.data import load
from lingraft.files import read_lines
from lingraft.runs import Run, load_tensors
from lingraft.runs import load as load_model

pytestmark = pytest.mark.slow

IMAGES, EPS = 12, 0.1


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Run:
    return Run(shutil.copytree(trained_run, tmp_path / "run"))


@pytest.fixture(scope="module")
def whole(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    """A run that was not interrupted, and what it printed."""
    run = Run(shutil.copytree(trained_run, tmp_path_factory.mktemp("verify") / "whole"))
    return run, json.loads(call(run, "--json", "--workers", "0"))


def call(run: Run, *arguments: str) -> str:
    command = ["verify", str(run.path), "--timeout", "60", "--images", str(IMAGES), *arguments]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def without_times(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if name not in ("run", "time", "curve", "domains")}


def test_figures_are_printed_and_everything_is_kept(whole: tuple[Run, dict[str, Any]]) -> None:
    run, printed = whole
    assert (printed["images"], printed["eps"], printed["data"], printed["timeout"]) == (IMAGES, EPS, "digits", 60)
    assert printed["verified"] > 0
    assert printed["falsified"] > 0
    assert printed["verified"] + printed["falsified"] + printed["misclassified"] == IMAGES
    kept = run.summary().as_dict()["verification"]
    assert list(kept) == [f"digits eps={EPS} images=0:{IMAGES} timeout=60"]
    assert {"run": str(run.path), **next(iter(kept.values()))} == printed
    records = read_lines(run.path / "verdicts.jsonl")
    assert sorted(record["index"] for record in records) == list(range(IMAGES))
    model, test = load_model(run), load("digits", "test")
    for record in records:
        assert {"verdict", "reason", "stage", "seconds", "crown", "alpha", "unstable", "domains", "memory"} <= set(
            record
        )
        assert (record["eps"], record["label"]) == (EPS, int(test.labels[record["index"]]))
        if record["verdict"] == "falsified":
            tensors, about = load_tensors(run.path / record["witness"])
            witness, image = tensors["witness"], test.pixels(slice(record["index"], record["index"] + 1))[0]
            assert about["label"] == record["label"]
            assert bool(((witness.double() - image.double()).abs() <= EPS).all())
            assert 0 <= float(witness.min()) <= float(witness.max()) <= 1
            assert int(model(witness[None]).argmax()) != record["label"]


def test_a_killed_run_goes_on_where_it_was(run: Run, whole: tuple[Run, dict[str, Any]]) -> None:
    path = run.path / "verdicts.jsonl"
    command = [sys.executable, "-m", "lingraft", "verify", str(run.path), "--timeout", "60", "--images", str(IMAGES)]
    process = subprocess.Popen([*command, "--workers", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while len(read_lines(path)) < 3 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = read_lines(path)
    assert 3 <= len(done) < IMAGES
    assert not run.summary().verification
    with open(path, "rb+") as file:  # as if the kill had come while the last line was written
        file.truncate(path.stat().st_size - 10)
    printed = json.loads(call(run, "--workers", "0", "--json"))
    assert without_times(printed) == without_times(whole[1])
    records = read_lines(path)
    assert records[: len(done) - 1] == done[:-1]
    assert sorted(record["index"] for record in records) == list(range(IMAGES))


def test_what_is_used_again(whole: tuple[Run, dict[str, Any]], tmp_path: Path) -> None:
    run = Run(shutil.copytree(whole[0].path, tmp_path / "run"))
    path = run.path / "verdicts.jsonl"

    def redone(*arguments: str) -> int:
        before = len(read_lines(path))
        call(run, "--workers", "0", *arguments)
        return len(read_lines(path)) - before

    assert redone() == 0
    assert redone("--images", f"2:{IMAGES + 1}") == 1
    assert redone("--eps", "0.001", "--images", "2") == 2
    witness = next((run.path / "witnesses").iterdir())
    witness.write_bytes(b"damaged")
    assert redone() == 1
    lines = read_lines(path)
    lines[0].update(verdict="unknown", reason="time", timeout=60.0, memory_limit=None, crown={}, alpha={})
    path.write_text(
        "".join(json.dumps(line) + "\n" for line in lines if line["index"] != lines[0]["index"] or line is lines[0])
    )
    assert redone() == 0, "as much time as before would not help"
    assert redone("--timeout", "61") == 1
    assert redone("--timeout", "61", "--double", "--images", "1") == 1
    model = load_model(run)
    with torch.no_grad():
        next(model.parameters()).mul_(1.001)
    run.save_weights(model)
    assert redone("--images", "3") == 3, "other weights"


def from_python(run: Run, images: slice, **options: Any) -> list[str]:
    """Verdicts of test images that are given as tensors, of a model that is given as a module."""
    test = load("digits", "test").take(images)
    found = lingraft.verify(
        load_model(run), test.pixels(), test.labels, eps=EPS, run=run.path, timeout=60, workers=0, **options
    )
    assert [result.index for result in found] == list(range(353))[images]
    return [result.verdict for result in found]


def test_python_and_the_command_line_share_verdicts(run: Run) -> None:
    """In both directions, wherever the images stand in the test set, and under the same names."""
    path = run.path / "verdicts.jsonl"
    printed = json.loads(call(run, "--json", "--workers", "0", "--images", "20:26"))
    records = path.read_text()
    verdicts = from_python(run, slice(20, 26))
    assert path.read_text() == records, "all are known"
    by_index = {record["index"]: record["verdict"] for record in read_lines(path)}
    assert verdicts == [by_index[i] for i in range(20, 26)]
    assert list(run.summary().verification) == [f"digits eps={EPS} images=20:26 timeout=60"]
    assert without_times(run.summary().as_dict()["verification"].popitem()[1]) == without_times(printed)

    from_python(run, slice(30, 34))
    records = path.read_text()
    assert records.count("\n") == 10
    call(run, "--workers", "0", "--images", "30:34")
    assert path.read_text() == records, "all are known"
    assert [record["data"] for record in read_lines(path)] == ["digits"] * 10
    name = f"digits eps={EPS} images=30:34 timeout=60"
    assert list(run.summary().verification) == [f"digits eps={EPS} images=20:26 timeout=60", name]

    found = lingraft.verify(run.path, slice(30, 34), timeout=60, workers=0)  # as the command does
    assert path.read_text() == records
    assert json.loads(json.dumps(found.figures)) == run.summary().as_dict()["verification"][name]


def test_scattered_images_keep_their_place(run: Run) -> None:
    test, which = load("digits", "test"), [40, 7, 41]
    images, labels = test.pixels(torch.tensor(which)), test.labels[which]
    found = lingraft.verify(load_model(run), images, labels, eps=EPS, run=run, timeout=60, workers=0)
    assert [result.index for result in found] == which
    assert list(run.summary().verification) == [f"digits eps={EPS} images=7:8,40:42 timeout=60"]
    records = (run.path / "verdicts.jsonl").read_text()
    call(run, "--workers", "0", "--images", "40:42")
    assert (run.path / "verdicts.jsonl").read_text() == records
    other = labels.clone()
    other[0] = (other[0] + 1) % 10
    found = lingraft.verify(load_model(run), images, other, eps=EPS, run=run, timeout=60, workers=0)
    assert read_lines(run.path / "verdicts.jsonl")[-1]["data"] == "own", "not the label of the data set"


def test_verdicts_under_another_name_are_used_and_named(run: Run) -> None:
    """As version 0.1.0 kept those of Python on other images than the first ones."""
    call(run, "--workers", "0", "--images", "50:52")
    path = run.path / "verdicts.jsonl"
    records = sorted(read_lines(path), key=lambda record: record["index"])
    old = [{**record, "data": "own", "index": record["index"] - 50} for record in records]
    path.write_text("".join(json.dumps(record) + "\n" for record in old))
    seconds = [record["seconds"] for record in old]
    for _ in range(2):
        call(run, "--workers", "0", "--images", "50:52")
        records = read_lines(path)
        assert [(r["data"], r["index"]) for r in records] == [("own", 0), ("own", 1), ("digits", 50), ("digits", 51)]
        assert [record["seconds"] for record in records] == 2 * seconds


@pytest.mark.parametrize(("verdict", "limit", "known"), [("verified", 59.9, False), ("verified", 60.1, True)])
def test_a_verdict_that_took_longer_than_the_limit_is_not_used(
    run: Run, verdict: str, limit: float, known: bool
) -> None:
    """Not even where it came but a moment later: VA under a limit must not depend on what was done before."""
    call(run, "--workers", "0", "--images", "20")
    path = run.path / "verdicts.jsonl"
    record = next(record for record in read_lines(path) if record["verdict"] == verdict)
    path.write_text(json.dumps({**record, "seconds": 60.0, "timeout": 300.0}) + "\n")
    index = record["index"]
    call(run, "--workers", "0", "--timeout", str(limit), "--images", f"{index}:{index + 1}")
    assert (len(read_lines(path)) == 1) == known


def test_certificates_from_python(run: Run, tmp_path: Path) -> None:
    test = load("digits", "test").take(IMAGES)
    model, proofs = load_model(run), tmp_path / "proofs"
    plain = lingraft.verify(model, test.pixels(), test.labels, eps=EPS, timeout=60, workers=0)
    assert {(result.certificate, result.checked) for result in plain} == {(None, None)}
    for workers in (0, 2):
        found = lingraft.verify(
            model, test.pixels(), test.labels, eps=EPS, timeout=60, workers=workers, certificates=proofs, check=True
        )
        assert [result.verdict for result in found] == [result.verdict for result in plain]
        for result in found:
            verified = True if result.verdict == "verified" else None
            assert (result.certificate, result.checked, result.proof) == (verified, verified, None)
        verified = found.summary.verified
        assert found.certificates is not None
        assert found.certificates.as_dict() == {
            "certificates": verified, "checked": verified, "rejected": {}, "missing": {},
        }  # fmt: skip
        checked = lingraft.check(proofs, model=proofs / "model.onnx")
        assert checked
        assert checked.accepted == len(checked.files) == verified
        assert {file.path.name for file in checked.files} == {
            f"image-{result.index}-eps{EPS}.cert" for result in found if result.verdict == "verified"
        }
        shutil.rmtree(proofs)


def test_certificates_of_a_run_from_python_and_from_the_command_line(run: Run) -> None:
    found = lingraft.verify(run, 6, timeout=60, workers=0, check=True)
    folder = run.path / "certificates"
    times = {file: file.stat().st_mtime_ns for file in folder.glob("*.cert")}
    assert len(times) == found.summary.verified > 0
    printed = json.loads(call(run, "--images", "6", "--workers", "0", "--check", "--json"))
    assert printed["certificates"]["checked"] == len(times)
    assert {file: file.stat().st_mtime_ns for file in folder.glob("*.cert")} == times, "none is written again"
    lost = next(iter(times))
    lost.unlink()
    again = lingraft.verify(run, 6, timeout=60, workers=0, check=True)
    assert lost.exists()
    assert [result.verdict for result in again] == [result.verdict for result in found]


def test_a_table_for_people(whole: tuple[Run, dict[str, Any]]) -> None:
    run, figures = whole
    printed = call(run, "--workers", "0")
    for text in ("verified (VA)", f"{figures['va']:.2%}", "unstable neurons (UNR)", "VA by time limit", "decided by"):
        assert text in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--eps", "2"], "whole pixel range"),
        (["--eps=-0.1"], "at least 0"),
        (["--eps", "nan"], "at least 0"),
        (["--images", "0"], "does not have"),
        (["--images", "354"], "it has 353"),
        (["--images", "400:"], "does not have"),
        (["--images", "some"], "are not images"),
        (["--timeout", "0"], "time limit"),
        (["--workers", "-1"], "workers"),
        (["--memory", "0"], "memory limit"),
        (["--data", "digitz"], "unknown data set"),
        (["--device", "quantum"], "not available"),
    ],
)
def test_bad_options(run: Run, options: list[str], message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        call(run, *options)
    assert run.summary().as_dict() == {}
    assert not (run.path / "verdicts.jsonl").exists()


def test_bad_models(run: Run) -> None:
    """Weights that are not numbers, and images that do not fit: an error, and nothing is written."""
    model = load_model(run)
    with torch.no_grad():
        next(model.parameters())[0] = torch.nan
    run.save_weights(model)
    with pytest.raises(LingraftError, match="NaN"):
        call(run)
    description = run.describe()
    run.write_description(description.model_copy(update={"architecture": "digits-cnn", "input_shape": (1, 9, 9)}))
    with pytest.raises(LingraftError):
        call(run)
    assert run.summary().as_dict() == {}
    assert not (run.path / "verdicts.jsonl").exists()
