"""Networks that come with lingraft, and such as are fetched from a server."""

import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

import lingraft
from lingraft.data.download import Patience
from lingraft.data.specs import PublishedFile, Source
from lingraft.errors import LingraftError
from lingraft.model.code import is_code
from lingraft.runs import Run, gallery, load_tensors
from lingraft.runs.gallery import NETWORKS, GalleryNetwork, packed
from lingraft.runs.own_images import kept_images


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data set is there, and copies go to a folder of the test's own."""
    monkeypatch.setenv("LINGRAFT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_said_of_a_network_can_be_seen_in_it(apart: Path, name: str):
    row = next(row for row in lingraft.gallery() if row["name"] == f"gallery:{name}")
    assert row["bytes"] < 5e6
    run = Run(row["name"])
    assert apart in run.path.parents
    tensors, _ = load_tensors(run.weights_path)
    assert all(t.dtype == torch.float16 for t in tensors.values() if t.is_floating_point())
    brought = kept_images(run, row["data"])
    assert brought is not None
    assert len(brought) == 50
    model = lingraft.load(row["name"])
    right = (model(brought.pixels()).argmax(1) == brought.labels).float().mean()
    assert abs(float(right) - row["sa"]) < 0.25  # 50 images; SA is of all
    assert 0 < row["va"] <= row["ra"] + 0.1 <= row["sa"] + 0.1


def test_the_package_is_not_written_to(apart: Path):
    name = next(iter(NETWORKS))
    here = packed(name)
    assert here is not None
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    run = Run(f"gallery:{name}")
    (run.path / "note").write_text("mine")
    assert (Run(f"gallery:{name}").path / "note").read_text() == "mine"  # copied once
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before


def test_something_is_proven_without_any_data_set(apart: Path):
    results = lingraft.verify("gallery:digits-grafted50", 4, timeout=60, workers=0)
    assert [result.index for result in results] == [0, 1, 2, 3]
    assert any(result.verdict == "verified" for result in results)
    assert Run("gallery:digits-grafted50").verdicts_path.exists()


def test_an_unknown_name_says_which_there_are():
    with pytest.raises(LingraftError, match="digits-grafted50"):
        lingraft.load("gallery:mona-lisa")


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LINGRAFT_DATA", str(tmp_path / "file"))
    with pytest.raises(LingraftError, match="LINGRAFT_DATA"):
        Run("gallery:digits-grafted50")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and its address on a server of this machine."""
    folder = tmp_path / "served"
    folder.mkdir()
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_network_from_a_server_is_checked(apart: Path, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch):
    here = packed("digits-grafted50")
    assert here is not None
    contents = {path.relative_to(here).as_posix(): path.read_bytes() for path in here.rglob("*") if path.is_file()}
    files = tuple(
        PublishedFile(name, len(content), hashlib.md5(content).hexdigest()) for name, content in contents.items()
    )
    folder, address = served
    for name, content in contents.items():
        (folder / name.rpartition("/")[2]).write_bytes(content)
    monkeypatch.setitem(NETWORKS, "far", GalleryNetwork("from afar", Source((address,), files)))
    monkeypatch.setattr(gallery, "PATIENCE", Patience(stall=5, rounds=1, pause=0))
    assert lingraft.gallery()[-1] == {
        "name": "gallery:far", "title": "from afar", "bytes": sum(map(len, contents.values())), "here": False,
    }  # fmt: skip
    model = lingraft.load("gallery:far")
    same = lingraft.load("gallery:digits-grafted50")
    for one, other in zip(model.state_dict().values(), same.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    # damaged on the way: nothing that could be taken for the network is left
    shutil.rmtree(Run("gallery:far").path)
    (folder / "model.safetensors").write_bytes(b"x" * len(contents["model.safetensors"]))
    with pytest.raises(LingraftError, match="checksum"):
        lingraft.load("gallery:far")


def test_a_name_is_not_taken_for_code():
    assert not any(is_code(f"gallery:{name}") for name in NETWORKS)


def test_how_a_network_was_made_is_kept():
    for name in NETWORKS:
        here = packed(name)
        assert here is not None
        lines = [json.loads(line)["command"] for line in (here / "commands.jsonl").read_text().splitlines()]
        assert lines[0].startswith("lingraft ")
