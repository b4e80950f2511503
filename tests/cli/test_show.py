"""`lingraft runs` and `lingraft show` print what the folders hold, and nothing is measured anew."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from lingraft import LingraftError
from lingraft.cli import app
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run


def call(*arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`plain`, evaluated and verified, a grafted child of it that is not, and a damaged run."""
    folder = tmp_path_factory.mktemp("runs")
    plain = Run(folder / "plain")
    torch.manual_seed(0)
    plain.write_description(
        ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10, data="digits", eps=0.01)
    )
    plain.save_weights(zoo.build("digits-cnn"))
    call("evaluate", plain.path, "--steps", 1, "--restarts", 1, "--images", 20)
    call("verify", plain.path, "--images", 20, "--timeout", 0.3, "--workers", 0)
    call("graft", plain.path, "--ratio", 0.25, "--epochs", 0, "--method", "random", "--images", 10,
         "--bound-images", 2, "--bounds", "intervals", "-o", folder / "deep" / "child")  # fmt: skip
    (folder / "broken").mkdir()
    (folder / "broken" / "model.json").write_text("{")
    return folder


def test_runs_lists_all_of_them_with_their_figures_and_names_the_damaged_one(folder):
    listed = {row["run"]: row for row in json.loads(call("runs", folder, "--json"))}
    assert list(listed) == ["broken", "deep/child", "plain"]
    assert "damaged" in listed["broken"]["error"]
    measured = Run(folder / "plain").summary().as_dict()
    (evaluation,), (verification,) = measured["evaluation"].values(), measured["verification"].values()
    assert listed["plain"]["sa"] == evaluation["sa"]
    assert listed["plain"]["va"] == verification["va"]
    assert listed["plain"]["misclassified"] == verification["misclassified"] > 0
    assert listed["deep/child"]["grafted"] == pytest.approx(0.25, abs=0.01)
    assert listed["deep/child"]["va"] is None


def test_a_summary_of_another_kind_hides_no_other_run(folder, tmp_path):
    for name in ("odd", "plain"):
        shutil.copytree(folder / "plain", tmp_path / name)
    (tmp_path / "odd" / "summary.json").write_text('{"evaluation": {"mine": {"data": "digits", "eps": 0.01}}}')
    odd, plain = json.loads(call("runs", tmp_path, "--json"))
    assert "does not say what lingraft writes" in odd["error"]
    assert plain["sa"] is not None
    with pytest.raises(LingraftError, match="does not say what lingraft writes"):
        call("show", tmp_path / "odd")


def test_runs_prints_a_table_in_which_what_was_not_measured_is_a_dash(folder):
    lines = {line.split()[0]: line.split() for line in call("runs", folder).splitlines() if line.split()}
    assert lines["deep/child"][2:4] == ["0.01", "25.0"]
    assert lines["deep/child"][6] == "–"
    assert lines["broken"][1] == "damaged"


def test_show_prints_model_sites_figures_and_commands(folder):
    shown = call("show", folder / "deep" / "child")
    assert "digits-cnn" in shown
    assert "25.0" in shown
    assert "lingraft graft" in shown
    known = json.loads(call("show", folder / "plain", "--json"))
    assert known["model"]["eps"] == 0.01
    assert known["figures"][0]["va"] is not None
    assert known["summary"] == Run(folder / "plain").summary().as_dict()
    assert known["files"]["model.safetensors"] == Run(folder / "plain").weights_path.stat().st_size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("runs", "nowhere"), "no folder nowhere"), (("show", "nowhere"), "not a run folder")],
)
def test_a_folder_that_is_not_there_is_an_error_that_says_what_to_do(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LingraftError, match=message):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_a_folder_without_runs_is_an_error_but_an_empty_list_in_json(tmp_path):
    assert json.loads(call("runs", tmp_path, "--json")) == []
    with pytest.raises(LingraftError, match="holds no run folder"):
        CliRunner().invoke(app, ["runs", str(tmp_path)], catch_exceptions=False)
