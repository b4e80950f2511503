"""The competition's score: what counts, who contradicts whom, and records of both kinds."""

from pathlib import Path

import pytest

from lingraft import LingraftError
from lingraft.formats.benchmark import Entry
from lingraft.work.vnncomp.score import read_record

JOINED = "[('f', 'onnx/a.onnx'), ('g', 'onnx/b.onnx')]"
ENTRIES = [
    Entry(Path(), "onnx/a.onnx", "vnnlib/p.vnnlib", 10),
    Entry(Path(), "onnx/b.onnx", "vnnlib/p.vnnlib", 10),
    Entry(Path(), JOINED, "./vnnlib/q.vnnlib", 10),
]
PEERS = f"""network,property,tool,answer,seconds
onnx/a.onnx,vnnlib/p.vnnlib,one,unsat,1
onnx/b.onnx,vnnlib/p.vnnlib,one,sat,1
"{JOINED}",vnnlib/q.vnnlib,one,unsat,1
onnx/a.onnx,vnnlib/p.vnnlib,two,timeout,1
onnx/b.onnx,vnnlib/p.vnnlib,two,unsat,1
onnx/other.onnx,vnnlib/p.vnnlib,two,unsat,1
"""


def test_points_and_contradictions(tmp_path):
    (tmp_path / "peers.csv").write_text(PEERS)
    record = read_record(tmp_path / "peers.csv", ENTRIES)
    assert record.answers == {"one": {0: "unsat", 1: "sat", 2: "unsat"}, "two": {1: "unsat"}}
    found = record.compare({0: "unsat", 1: "sat"}, ENTRIES)
    points = {tool: (score["points"], score["wrong"], score["percent"]) for tool, score in found["scores"].items()}
    assert points == {"lingraft": (20, 0, 66.7), "one": (30, 0, 100.0), "two": (-150, 1, 0.0)}
    assert [(item["network"], item["two"], item["lingraft"]) for item in found["contradictions"]] == [
        ("onnx/b.onnx", "unsat", "sat")
    ]
    wrong = record.compare({1: "unsat", 2: "sat"}, ENTRIES)["scores"]
    assert [wrong[tool]["points"] for tool in ("lingraft", "one")] == [-140, -130]


def test_results_of_the_competition(tmp_path):
    (tmp_path / "nnenum").mkdir()
    path = tmp_path / "nnenum" / "results.csv"
    lines = [f"{n},./benchmarks/x/onnx/{n}.onnx,./benchmarks/x/vnnlib/p.vnnlib,0.1,{w},5" for n, w in (("a", "holds"), ("b", "violated"))]  # fmt: skip
    path.write_text("\n".join(lines))
    assert read_record(path, ENTRIES).answers == {"nnenum": {0: "unsat", 1: "sat"}}


@pytest.mark.parametrize(("text", "message"), [("", "no answers"), ("a,b\n", "line 1: expected")])
def test_what_is_no_record(tmp_path, text, message):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(LingraftError, match=message):
        read_record(tmp_path / "r.csv", ENTRIES)
    with pytest.raises(LingraftError, match="cannot read"):
        read_record(tmp_path / "none.csv", ENTRIES)
