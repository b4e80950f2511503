"""Lists of instances."""

from pathlib import Path

import pytest

from lingraft import LingraftError
from lingraft.formats.benchmark import read_instances


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "a.b.onnx").write_bytes(b"network")
    for name in ("p.vnnlib", "q.vnnlib.gz", "r.vnnlib"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "instances.csv").write_text(
        "onnx/a.b.onnx,p.vnnlib,10\n\n onnx/a.b.onnx , q.vnnlib,2.5\nonnx/a.b.onnx,r.vnnlib,10\n"
    )
    return tmp_path


def test_instances_are_read(folder) -> None:
    first, second, _ = read_instances(folder)
    assert (first.network, first.spec, first.timeout, first.name) == ("onnx/a.b.onnx", "p.vnnlib", 10, "a.b_p")
    assert first.vnnlib == folder / "p.vnnlib"
    assert second.vnnlib == folder / "q.vnnlib.gz", "only the packed one is there"
    assert (second.timeout, second.name) == (2.5, "a.b_q")


def test_a_list_of_networks(folder) -> None:
    line = "\"[('f', 'onnx/a.b.onnx'), ('g', './onnx/a.b.onnx')]\",./p.vnnlib,10\n"
    (folder / "instances.csv").write_text(line)
    (entry,) = read_instances(folder)
    assert entry.name == "f_g_p"
    assert entry.files == dict.fromkeys("fg", folder / "onnx" / "a.b.onnx")
    assert entry.networks_from_here == str(list(zip("fg", [f"{folder}/onnx/a.b.onnx"] * 2, strict=True)))
    before = entry.digest()
    (folder / "onnx" / "a.b.onnx").write_bytes(b"other")
    assert entry.digest() != before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[a,b,10\n", "line 1: .* no list of networks"),
        (None, "No such file"),
        ("", "no instances"),
        ("a,b\n", "line 1: expected network,property,seconds; found 2"),
        ("a,b,10\na,b,soon\n", "line 2: 'soon' is not a number"),
        ("a,b,-1\n", "above 0"),
        ("a,b,inf\n", "above 0"),
        ("a,b,10\n\xff", "cannot read"),
    ],
)
def test_wrong_lists(tmp_path, content, message) -> None:
    if content is not None:
        (tmp_path / "instances.csv").write_bytes(content.encode("latin-1"))
    with pytest.raises(LingraftError, match=message):
        read_instances(tmp_path)
