"""`lingraft front` on digits: rounds, the test, files, and going on after a stop."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lingraft
from lingraft import LingraftError
from lingraft.cli import app
from lingraft.files import read_lines

QUICK = [
    "front", "--data", "digits", "--model", "digits-cnn", "--eps", "0.05", "--threads", "1", "--workers", "0",
    "--validation-images", "3", "--validation-timeout", "0.3", "--images", "4", "--timeout", "0.3",
]  # fmt: skip
ROWS = ["--row", "FAT", "--row", "MTL-IBP, α = 0.1", "--row", "SABR, λ = 0.4"]


def call(*words: object) -> Any:
    done = CliRunner().invoke(app, [str(word) for word in (*QUICK, *words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.slow
def test_the_better_half_goes_on_is_tested_and_nothing_is_done_twice(tmp_path: Path) -> None:
    out = tmp_path / "front"
    words = [*ROWS, "--first-epochs", "1", "--epochs", "2", "-o", out, "--min-sa", "0.2"]
    told = json.loads(call(*words, "--json").stdout)
    record = json.loads((out / "front.json").read_text())
    first, second = record["rounds"]
    assert [(point["name"], point["epochs"]) for point in first] == [
        ("FAT", 1), ("MTL-IBP, α = 0.1", 1), ("SABR, λ = 0.4", 1),
    ]  # fmt: skip
    assert {point["epochs"] for point in second} == {2}
    assert {point["name"] for point in second} < {point["name"] for point in first}
    for each in told["tested"]:
        assert lingraft.Run(each["run"]).describe().data == "digits"
        assert each["images"] == 4
        assert each["images_sa"] == 353
        assert each["interval"][0] <= each["va"] <= each["interval"][1]
    assert told["advice"][0].startswith(("for SA ≥ 20.0% take", "no network has"))
    rows = list(csv.DictReader((out / "front.csv").read_text().splitlines()))
    assert [row["name"] for row in rows if row["front"] == "True"] == [
        each["name"] for each in told["tested"] if each["name"] in told["front"]
    ]
    assert (out / "front.svg").read_text().rstrip().endswith("</svg>")
    stages, points = (out / "stages.jsonl").read_bytes(), (out / "points.jsonl").read_bytes()
    # killed after the first round: what is there is not done again, the rest is, and it ends in the same way
    lines = read_lines(out / "points.jsonl")
    assert [line["epochs"] for line in lines] == [1, 1, 1, 2, 2][: len(lines)]
    (out / "points.jsonl").write_bytes(b"".join(points.splitlines(keepends=True)[:-1]))
    again = call(*words)
    assert (out / "stages.jsonl").read_bytes() == stages
    assert read_lines(out / "points.jsonl")[-1]["key"] == lines[-1]["key"]
    assert "FAT" in again.stdout
    assert json.loads((out / "front.json").read_text())["tested"] == record["tested"]
    with pytest.raises(LingraftError, match="holds a front of eps"):
        call(*words, "--eps", "0.2")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hours", "0"], "--hours must be above 0"),
        (["--row", "magic"], "no setting is called magic. There are: FAT"),
        (["--first-epochs", "9", "--epochs", "8"], "--first-epochs"),
        (["--min-sa", "74"], "between 0 and 1"),
        (["--eps", "0"], "nothing to verify"),
        (["--model", "net.py:make"], "is code"),
        (["--images", "0"], "at least 1 test image"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(tmp_path: Path, words: list[str], message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        call(*words, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()
