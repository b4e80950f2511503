"""Everything that is read from a run folder."""

import io
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lingraft
from lingraft.data import load as load_data
from lingraft.errors import LingraftError
from lingraft.files import line_of, read_json, read_lines
from lingraft.grafting import GraftingConfig, graft_network
from lingraft.grafting.mask_file import load_mask, save_mask
from lingraft.grafting.scores import Scores
from lingraft.model import zoo
from lingraft.pool.images import verify_each
from lingraft.report.write import write_report
from lingraft.runs import ModelDescription, Run, load_tensors, save_tensors
from lingraft.runs.summary import summarize
from lingraft.runs.verdicts import Verdicts
from lingraft.solver.request import Limits, Request
from lingraft.training import Destination, TrainingConfig, TrainingData, train_network
from lingraft.training.checkpoint import Checkpoint

FUZZ = settings.get_profile("fuzz")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run and a grafted one, with everything that commands leave in them."""
    folder = tmp_path_factory.mktemp("runs")
    torch.manual_seed(0)
    images, validation = load_data("digits", "train").take(64), load_data("digits", "validation").take(16)
    description = ModelDescription(
        architecture="digits-cnn", input_shape=(1, 8, 8), classes=10, mean=[0.3], std=[0.4], data="digits", eps=0.1
    )
    run = Run(folder / "run")
    model = zoo.build("digits-cnn", mean=[0.3], std=[0.4])
    config = TrainingConfig(0.1, epochs=2, batch=32, lr=0.05, validation_steps=1, schedule="one-cycle")
    data = TrainingData(images, validation)
    history = train_network(model, data, config, Destination(run, description), on_epoch=())
    figures = {"best": history.best.as_dict(), "epochs": 2, "settings": config.as_dict()}
    run.add_to_summary("training", figures)
    attacked = {"data": "digits", "eps": 0.1, "sa": 0.5, "ra": 0.25, "steps": 2, "restarts": 1, "images": 8}
    run.add_to_summary("evaluation", {"digits pgd": {**attacked, "images_sa": 8, "attack": "PGD-2", "seconds": 1.0}})
    test = load_data("digits", "test").take(4)
    request = Request(model, test.pixels(), test.labels, eps=0.1)
    limits = Limits(5.0)
    verdicts, results = Verdicts(run, "digits", request, limits), []
    for i, result in verify_each(request, limits):
        verdicts.keep(i, result)
        results.append(result)
    run.add_to_summary("verification", {"digits": {"data": "digits", "eps": 0.1, **summarize(results, 5.0).as_dict()}})
    grafting = GraftingConfig(0.1, images=16, bound_images=4, bounds="intervals")
    grafted = Run(folder / "grafted")
    own = description.model_copy(update={"parent": str(run.path)})
    graft_network(model, data, grafting, None, Destination(grafted, own))
    shutil.copy(grafted.scores_path, run.scores_path)
    save_mask(run.path / "mask.safetensors", {"1": torch.rand(4, 3) > 0.5})
    return folder


@pytest.fixture(scope="module")
def asked() -> Request:
    model = zoo.build("digits-cnn", mean=[0.3], std=[0.4]).eval()
    test = load_data("digits", "test").take(4)
    return Request(model, test.pixels(), test.labels, eps=0.1)


def known(folder: Path, asked: Request) -> Any:
    return Verdicts(Run(folder / "run"), "digits", asked, Limits(5.0)).known()


def report(folder: Path) -> Any:
    return write_report([folder / "run", folder / "grafted"], folder / "report.md")


#: file → what reads it
READERS: dict[str, list[Callable[..., Any]]] = {
    "run/model.json": [lambda folder, asked: lingraft.load(folder / "run")],
    "grafted/model.json": [lambda folder, asked: lingraft.load(folder / "grafted")],
    "run/model.safetensors": [lambda folder, asked: lingraft.load(folder / "run")],
    "grafted/model.safetensors": [lambda folder, asked: lingraft.load(folder / "grafted")],
    "run/checkpoint.safetensors": [lambda folder, asked: Checkpoint.load(Run(folder / "run"))],
    "run/mask.safetensors": [lambda folder, asked: load_mask(folder / "run" / "mask.safetensors")],
    "run/scores.npz": [lambda folder, asked: Scores.load(folder / "run" / "scores.npz").instability_rank],
    "run/verdicts.jsonl": [known, lambda folder, asked: report(folder)],
    "run/history.jsonl": [lambda folder, asked: read_lines(folder / "run" / "history.jsonl")],
    "run/summary.json": [lambda folder, asked: report(folder)],
    "grafted/summary.json": [lambda folder, asked: report(folder)],
}


def attempt(fuzzed: Any, whole: Path, name: str, content: bytes, asked: Request) -> None:
    path = whole / name
    kept = path.read_bytes() if path.exists() else None
    path.write_bytes(content)
    try:
        for read in READERS[name]:
            fuzzed.survive(lambda read=read: read(whole, asked))
    finally:
        if kept is None:
            path.unlink()
        else:
            path.write_bytes(kept)


def test_the_examples_are_good(whole: Path, asked: Request) -> None:
    for readers in READERS.values():
        for read in readers:
            read(whole, asked)
    assert len(read_lines(whole / "run" / "verdicts.jsonl")) == 4


@pytest.mark.parametrize("name", READERS)
@FUZZ
@given(data=st.data())
def test_damaged_bytes(fuzzed: Any, whole: Path, asked: Request, name: str, data: st.DataObject) -> None:
    path = whole / name
    attempt(fuzzed, whole, name, fuzzed.bytes(data, path.read_bytes() if path.exists() else b"{}"), asked)


@pytest.mark.parametrize("name", [name for name in READERS if name.endswith(".json")])
@FUZZ
@given(data=st.data())
def test_other_values_in_json(fuzzed: Any, whole: Path, asked: Request, name: str, data: st.DataObject) -> None:
    path = whole / name
    content = fuzzed.json(data, read_json(path) if path.exists() else {"grafting": {"settings": {}, "after": {}}})
    attempt(fuzzed, whole, name, json.dumps(content).encode(), asked)


@pytest.mark.parametrize("name", ["run/verdicts.jsonl", "run/history.jsonl"])
@FUZZ
@given(data=st.data())
def test_other_values_in_lines(fuzzed: Any, whole: Path, asked: Request, name: str, data: st.DataObject) -> None:
    records = read_lines(whole / name)
    records[0] = fuzzed.json(data, records[0])
    lines = [json.dumps(records[0]).encode() + b"\n", *map(line_of, records[1:])]
    attempt(fuzzed, whole, name, b"".join(lines), asked)


@pytest.mark.parametrize("name", [name for name in READERS if name.endswith(".safetensors")])
@FUZZ
@given(data=st.data())
def test_other_safetensors_headers(fuzzed: Any, whole: Path, asked: Request, name: str, data: st.DataObject) -> None:
    content = (whole / name).read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    texts = {key: json.loads(value) for key, value in header["__metadata__"].items() if key != "crc32"}
    if data.draw(st.booleans()):
        changed = fuzzed.json(data, texts)
        texts = changed if isinstance(changed, dict) else {}
        header["__metadata__"] = {key: json.dumps(value) for key, value in texts.items()}
    else:
        header["__metadata__"].pop("crc32")
        header = fuzzed.json(data, header)
    text = json.dumps(header).encode()
    attempt(fuzzed, whole, name, struct.pack("<Q", len(text)) + text + content[8 + length :], asked)


ARRAYS = st.sampled_from(
    [
        np.array("{}"), np.array("["), np.array("[" * 50000), np.array(3), np.zeros((2, 3)), np.zeros(0), np.zeros((2, 0)),
        np.array([np.nan, 1.0]), np.array(["a"]), np.array([1 + 2j]), np.array([b"x"]), np.array([(1, 2)], "i4,i4"),
        np.zeros(3, "datetime64[s]"), np.zeros(3, ">f4"), np.zeros(2, np.float16), np.zeros(2, np.longdouble), np.array([True]),
        np.array([{}], dtype=object),
    ]
)  # fmt: skip


@FUZZ
@given(
    data=st.data(),
    names=st.lists(st.sampled_from(["facts", "significance/raw/1", "instability/raw/1", "x/raw/1", "raw", "significance/raw/"]), max_size=4, unique=True),
)  # fmt: skip
def test_other_arrays_in_scores(
    fuzzed: Any, whole: Path, asked: Request, data: st.DataObject, names: list[str]
) -> None:
    file = io.BytesIO()
    np.savez(file, **{name: data.draw(ARRAYS) for name in names})
    attempt(fuzzed, whole, "run/scores.npz", file.getvalue(), asked)


@pytest.mark.parametrize(
    "changes",
    [
        {"classes": 10**12},
        {"classes": 10**7},
        {"input_shape": [10**12, 8, 8], "mean": None, "std": None},
        {"input_shape": [1, 4096, 4096]},
        {"input_shape": []},
        {"grafted": [{"name": "2", "shape": [10**6, 10**6], "grafted": 1, "pruned": 0}]},
        {"grafted": [{"name": "2", "shape": [0], "grafted": 1, "pruned": 0}]},
        {"architecture": "conv-huge"},
    ],
)
def test_descriptions_of_huge_networks(fuzzed: Any, whole: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    shutil.copytree(whole / "run", tmp_path / "run")
    path = tmp_path / "run" / "model.json"
    path.write_text(json.dumps({**read_json(path), **changes}))
    with pytest.raises(LingraftError):
        lingraft.load(tmp_path / "run")


@pytest.mark.parametrize("shape", [[4, 2**63], [10**6, 10**6], [-4, -3], [], [2.5], None, "ab", [[4]]])
def test_other_shapes_of_masks(tmp_path: Path, shape: Any) -> None:
    path = tmp_path / "mask.safetensors"
    save_tensors(path, {"1": torch.zeros(2, dtype=torch.uint8)}, {"shapes": {"1": shape}})
    with pytest.raises(LingraftError, match="not a mask"):
        load_mask(path)


def npy(shape: tuple[int, ...], kind: str = "<f8") -> bytes:
    """The start of a .npy file that claims this shape."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue()


@pytest.mark.parametrize("content", [npy((2**40,)), npy((2**62, 4)), npy((10**6, 10**6), "|V1")])
def test_scores_that_claim_a_huge_array(fuzzed: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "scores.npz"
    for packing in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(path, "w", packing) as archive:
            archive.writestr("facts.npy", npy((), "<U2") + "{}".encode("utf-32-le"))
            archive.writestr("significance/raw/1.npy", content)
        with pytest.raises(LingraftError, match="damaged"):
            fuzzed.survive(lambda: Scores.load(path)) or Scores.load(path)


def test_scores_that_unpack_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "scores.npz"
    Scores({"1": torch.zeros(1 << 18)}).save(path)
    Scores.load(path)
    monkeypatch.setattr("lingraft.grafting.scores.LARGEST", 1 << 20)
    with pytest.raises(LingraftError, match="it unpacks to"):
        Scores.load(path)


@pytest.mark.parametrize(
    "text", ["[" * 10**6, '{"a":' * 10**5, "1" * 10**5, '{"a": ' + "1" * 10**5 + "}", "{" + " " * 10**6]
)
def test_hostile_json(tmp_path: Path, text: str) -> None:
    path = tmp_path / "summary.json"
    path.write_text(text)
    with pytest.raises(LingraftError, match="damaged"):
        read_json(path)
    assert read_lines(path) == []


TEXT = b'{"__metadata__": {"a": "' + b"[" * 200_000 + b'"}}'
NESTED = struct.pack("<Q", len(TEXT)) + TEXT


@pytest.mark.parametrize(
    "header", [b"\xff" * 8, struct.pack("<Q", 2**40) + b"{}", struct.pack("<Q", 2) + b"{}" + bytes(100), NESTED]
)
def test_hostile_safetensors(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(header)
    with pytest.raises(LingraftError, match="damaged"):
        load_tensors(path)
