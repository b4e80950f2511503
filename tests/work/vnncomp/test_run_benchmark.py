"""A benchmark in this process: properties of both versions, kept answers, and a record to compare with."""

import ast
import csv
import gzip
from pathlib import Path

import pytest
import torch
from torch import nn

from lingraft import LingraftError, benchmark, export_onnx
from lingraft.files import read_lines
from lingraft.formats.vnnlib_write import write_vnnlib


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """One property of version 1.0 that holds, and one of version 2.0 about two networks that does not."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)).eval() for _ in range(2)]
    for name, model in zip("fg", layers, strict=True):
        export_onnx(model, tmp_path / f"{name}.onnx", input_shape=(2,))
    x = torch.rand(1, 2)
    label = int(layers[0](x).argmax())
    write_vnnlib(tmp_path / "p.vnnlib", (x - 1e-4).numpy(), (x + 1e-4).numpy(), label, 2)
    tensors = "".join(
        f"(declare-network {n} (declare-input X{n} real [2]) (declare-output Y{n} real [2]))" for n in "fg"
    )
    bounds = "".join(f"(assert (and (<= Xf[{i}] 1) (>= Xf[{i}] 0) (== Xf[{i}] Xg[{i}])))" for i in range(2))
    (tmp_path / "q.vnnlib").write_text(f"(vnnlib-version <2.0>){tensors}{bounds}(assert (!= Yf[0] Yg[0]))")
    (tmp_path / "instances.csv").write_text("f.onnx,p.vnnlib,30\n\"[('f', 'f.onnx'), ('g', 'g.onnx')]\",q.vnnlib,30\n")
    return tmp_path


def test_both_versions(bench: Path) -> None:
    log = benchmark(bench, workers=0)
    assert [answer.word for answer in log.answers.values()] == ["unsat", "sat"]
    with open(bench / "results" / "results.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0][1] == str(bench / "f.onnx")
    assert ast.literal_eval(rows[1][1]) == [(name, str(bench / f"{name}.onnx")) for name in "fg"]
    with gzip.open(bench / "results" / "f_g_q.counterexample.gz", "rt") as file:
        assert file.readline() == "Xf real [2]\n"
    again = benchmark(bench, workers=0)
    assert again.figures() == log.figures()
    assert len(read_lines(bench / "results" / "answers.jsonl")) == 2, "nothing was done again"


def test_with_a_record(bench: Path) -> None:
    record = bench / "peers.csv"
    record.write_text("network,property,tool,answer,seconds\nf.onnx,p.vnnlib,other,unsat,1\n")
    figures = benchmark(bench, workers=0, against=record).figures()
    assert {tool: score["points"] for tool, score in figures["scores"].items()} == {"lingraft": 20, "other": 10}
    assert figures["contradictions"] == []
    with pytest.raises(LingraftError, match="cannot read"):
        benchmark(bench, workers=0, against=bench / "none.csv")
