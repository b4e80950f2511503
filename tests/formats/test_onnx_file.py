"""Files that are damaged, cut short, too large or not ONNX give a LingraftError and nothing else."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from lingraft import LingraftError
from lingraft.formats import onnx_file
from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.onnx_import import load_onnx
from lingraft.model.sites import sites
from lingraft.model.surgery import graft


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> bytes:
    """The file of a small grafted network."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3), nn.Tanh()]
    model = nn.Sequential(*layers)
    half = {site.name: torch.rand(site.shape) < 0.5 for site in sites(model, (1, 4, 4))}
    path = tmp_path_factory.mktemp("good") / "net.onnx"
    export_onnx(graft(model, half), path, input_shape=(1, 4, 4))
    return path.read_bytes()


def only_lingraft_errors(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        load_onnx(path)
    except LingraftError as error:
        assert str(path) in str(error)  # noqa: PT017  (loading may also succeed: the damage may be harmless)


SHARED_FOLDER = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SHARED_FOLDER
@given(data=st.data())
def test_flipped_bits(tmp_path, good, data):
    content = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    only_lingraft_errors(tmp_path / "damaged.onnx", bytes(content))


@SHARED_FOLDER
@given(data=st.data())
def test_bytes_lost_and_inserted(tmp_path, good, data):
    start = data.draw(st.integers(0, len(good) - 1))
    end = data.draw(st.integers(start, min(len(good), start + 40)))
    only_lingraft_errors(tmp_path / "damaged.onnx", good[:start] + data.draw(st.binary(max_size=8)) + good[end:])


@SHARED_FOLDER
@given(content=st.binary(max_size=300))
def test_random_bytes(tmp_path, content):
    path = tmp_path / "random.onnx"
    path.write_bytes(content)
    with pytest.raises(LingraftError, match=r"random\.onnx"):
        load_onnx(path)


def test_every_truncation_is_refused(tmp_path, good):
    path = tmp_path / "short.onnx"
    for length in range(0, len(good) - 1, max(1, len(good) // 60)):
        path.write_bytes(good[:length])
        with pytest.raises(LingraftError, match=r"short\.onnx"):
            load_onnx(path)


def test_missing_file(tmp_path):
    with pytest.raises(LingraftError, match="cannot read"):
        load_onnx(tmp_path / "nowhere.onnx")


def test_folder(tmp_path):
    with pytest.raises(LingraftError, match="not a file"):
        load_onnx(tmp_path)


def test_too_large(tmp_path, good, monkeypatch):
    path = tmp_path / "net.onnx"
    path.write_bytes(good)
    monkeypatch.setattr(onnx_file, "MAX_BYTES", 100)
    with pytest.raises(LingraftError, match="more than the 100"):
        load_onnx(path)
