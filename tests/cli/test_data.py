"""`lingraft data` and `lingraft data fetch`, as typed."""

import gzip
import hashlib
import json
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from typer.testing import CliRunner

from lingraft import LingraftError
from lingraft.cli import app
from lingraft.data import DATASETS
from lingraft.data.specs import PublishedFile, Source


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "data"
    monkeypatch.setenv("LINGRAFT_DATA", str(path))
    monkeypatch.setenv("COLUMNS", "200")
    return path


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server with an MNIST of 4 + 2 images, which for this test is the published one."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    files = []
    for prefix, count in (("train", 4), ("t10k", 2)):
        for kind, shape in (("images-idx3", (count, 28, 28)), ("labels-idx1", (count,))):
            header = struct.pack(f">{1 + len(shape)}I", 0x0800 + len(shape), *shape)
            content = gzip.compress(header + np.ones(shape, dtype=np.uint8).tobytes())
            name = f"{prefix}-{kind}-ubyte.gz"
            (shelf / name).write_bytes(content)
            files.append(PublishedFile(f"mnist/{name}", len(content), hashlib.md5(content).hexdigest()))
    source = Source(("http://127.0.0.1:9/",), tuple(files))
    spec = replace(DATASETS["mnist"], train_images=4, validation_images=1, test_images=2, source=source)
    monkeypatch.setitem(DATASETS, "mnist", spec)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(shelf))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def run(*arguments: str):
    return CliRunner().invoke(app, ["data", *arguments])


def test_lists_what_is_there(folder: Path):
    (folder / "svhn").mkdir(parents=True)
    for part, count in (("train", 5001), ("test", 7)):
        content = {"X": np.zeros((32, 32, 3, count), dtype=np.uint8), "y": np.ones((count, 1))}
        scipy.io.savemat(folder / "svhn" / f"{part}_32x32.mat", content, do_compression=True)
    result = run()
    assert result.exit_code == 0
    rows = {line.split("│")[1].strip(): line for line in result.stdout.splitlines() if "│" in line}
    assert "complete" in rows["digits"]
    assert "missing" in rows["mnist"]
    assert [cell.strip() for cell in rows["svhn"].split("│")[3:7]] == ["shorter", "1", "5,000", "7"]
    assert str(folder) in result.stdout
    assert "7 of 26,032 published images" in result.stdout
    assert "next: lingraft data fetch mnist" in result.stderr


def test_json_is_alone_on_standard_output(folder: Path):
    content = json.loads(run("--json").stdout)
    assert content["folder"] == str(folder)
    by_name = {row["name"]: row for row in content["datasets"]}
    assert list(by_name) == list(DATASETS)
    assert by_name["digits"] == {
        "name": "digits",
        "state": "complete",
        "train": 1266,
        "validation": 178,
        "test": 353,
        "remarks": [],
    }
    assert by_name["cifar10"]["state"] == "missing"
    assert by_name["cifar10"]["train"] is None
    assert str(folder) in by_name["cifar10"]["remarks"][0]


def test_fetch(folder: Path, address: str):
    result = run("fetch", "mnist", "--from", address)
    assert result.exit_code == 0, result.output
    assert len(list((folder / "mnist").iterdir())) == 4
    assert "complete, 3 train, 1 validation, 2 test images" in result.stdout
    assert "next: lingraft train --data mnist" in result.stderr
    again = run("fetch", "mnist", "--from", address)
    assert "nothing to download" in again.stdout


def test_fetch_as_json(folder: Path, address: str):
    content = json.loads(run("fetch", "mnist", "--from", address, "--json").stdout)
    assert content["state"] == "complete"
    assert sorted(content["new"]) == sorted(map(str, (folder / "mnist").iterdir()))


def test_fetch_from_nowhere(folder: Path):
    result = run("fetch", "mnist", "--from", "not an address")
    assert isinstance(result.exception, LingraftError)


def test_fetch_something_unknown(folder: Path):
    result = run("fetch", "minst")
    assert isinstance(result.exception, LingraftError)
    assert "Did you mean 'mnist'" in str(result.exception)


def test_json_before_the_command_is_pointed_out(folder: Path):
    result = run("--json", "fetch", "digits")
    assert result.exit_code == 2
    assert "lingraft data fetch --json" in result.output
