"""Which file is which network."""

from pathlib import Path

import pytest

from lingraft import LingraftError
from lingraft.formats.network_files import assign, network_files
from lingraft.formats.vnnlib_query import DeclaredNetwork

F = DeclaredNetwork("f", (), (), ())
G = DeclaredNetwork("g", (), (), (), "f", same=True)
H = DeclaredNetwork("h", (), (), (), "f")


def test_a_file_or_a_list():
    assert network_files(Path("a/b.onnx")) == {"": Path("a/b.onnx")}
    assert network_files("[('f', './a.onnx'), (\"g\", 'b.onnx')]") == {"f": Path("a.onnx"), "g": Path("b.onnx")}


@pytest.mark.parametrize(
    "text",
    ["[", "[]", "[('f',)]", "[('f', 1)]", "['ab']", "[('f', 'a'), ('f', 'b')]", "[__import__('os')]", "[" * 90_000,
     "[('f', '" + "a" * 200_000 + "')]"],
    ids=["open", "empty", "short", "number", "text", "twice", "code", "deep", "long"],
)  # fmt: skip
def test_what_is_no_list(text):
    with pytest.raises(LingraftError, match=r"list of networks|named twice"):
        network_files(text)


def test_networks_get_their_files(tmp_path):
    a, b = tmp_path / "a.onnx", tmp_path / "b.onnx"
    a.write_text("a"), b.write_text("b")
    assert assign([F], {"": a}) == {"f": a}
    assert assign([DeclaredNetwork("", (), (), ())], {"f": a}) == {"": a}, "version 1.0 has no names"
    assert assign([F, G], {"": a}) == assign([F, G], {"f": a, "g": a}) == {"f": a, "g": a}
    assert assign([F, H], {"f": a, "h": b}) == {"f": a, "h": b}
    with pytest.raises(LingraftError, match="declared equal to f"):
        assign([F, G], {"f": a, "g": b})
    b.write_text("a")
    assert assign([F, G], {"f": a, "g": b}) == {"f": a, "g": b}
    for files, message in (
        ({"": a}, "for network h"),
        ({"f": a}, "for network h"),
        ({"f": a, "h": b, "k": b}, "no network 'k'"),
    ):
        with pytest.raises(LingraftError, match=message):
            assign([F, H], files)
