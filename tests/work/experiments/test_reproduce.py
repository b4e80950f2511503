"""All recipes at smoke scale, through the command line, on real runs."""

import csv
import inspect
import json
import shutil
from pathlib import Path

import pytest

from lingraft.errors import LingraftError
from lingraft.files import read_lines
from lingraft.runs import Run
from lingraft.work.experiments import Reproduction, make_plan, recipes, scales
from lingraft.work.experiments.perform import FUNCTIONS, keywords, perform
from lingraft.work.experiments.stage import Stage
from lingraft.work.train import train

pytestmark = pytest.mark.slow


def command(arguments: list[str]) -> None:
    from lingraft.cli import app

    app(arguments, standalone_mode=False)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smoke")
    command(["reproduce", "all", "--scale", "smoke", "--out", str(folder)])
    return folder


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_gives_its_files(smoke: Path, name: str):
    recipe, folder = recipes()[name], smoke / name
    record = json.loads((folder / "result.json").read_text())
    assert record["scale"] == "smoke"
    assert record["versions"]["torch"]
    assert all(stage["line"].startswith("lingraft ") for stage in record["stages"])
    text = (folder / "table.md").read_text()
    assert "scale **smoke**" in text
    assert (folder / "report.html").stat().st_size > 10_000
    for result in record["results"]:
        for column in recipe.columns:
            if column in ("va", "sa", "ra") and column in result["measured"]:
                assert 0 <= result["measured"][column]["mean"] <= 100
    for key in recipe.figures:
        pictures = list(folder.glob(f"{key}*.svg"))
        assert pictures, f"{name} has no figure {key}"
        assert all(picture.read_text().rstrip().endswith("</svg>") for picture in pictures)


def test_the_papers_figures_stand_beside_ours(smoke: Path):
    rows = list(csv.DictReader((smoke / "main" / "table.csv").read_text().splitlines()))
    found = [row for row in rows if row["row"] == "Grafting 50 %" and row["column"] == "va"]
    assert [float(row["paper"]) for row in found] == [82.3, 57.8, 50.4, 38.1, 39.12, 28.3]
    assert {row["scale"] for row in found} == {"smoke"}
    text = (smoke / "main" / "table.md").read_text()
    assert "in the paper: ConvBig, MNIST" in text  # digits stand for it, and it is said


def test_nothing_is_done_twice(smoke: Path, capsys: pytest.CaptureFixture[str]):
    lines = read_lines(smoke / "stages.jsonl")
    assert len({(line["command"], line["key"]) for line in lines}) == len(lines)
    command(["reproduce", "all", "--scale", "smoke", "--out", str(smoke), "--dry-run"])
    assert capsys.readouterr().out == ""


def test_a_table_outlives_its_weights_and_a_move(smoke: Path, tmp_path: Path):
    """So that tables in a repository can grow from call to call."""
    light = shutil.copytree(smoke, tmp_path / "light", ignore=shutil.ignore_patterns("*.safetensors", "figures"))
    log = (light / "stages.jsonl").read_text()
    command(["reproduce", "front", "--scale", "smoke", "--out", str(light)])
    assert (light / "stages.jsonl").read_text() == log
    whole, again = (json.loads((folder / "front" / "result.json").read_text()) for folder in (smoke, light))
    assert again["results"] == whole["results"]


def test_a_failed_stage_says_which_and_the_next_run_goes_on(tmp_path: Path):
    plan = make_plan("masks", recipes()["masks"], "smoke", scales()["smoke"])
    ran: list[str] = []

    def failing(stage: Stage, runs: Path) -> None:
        ran.append(stage.command)
        if stage.command == "graft" and ran.count("graft") == 1:
            raise LingraftError("the disk is full")
        perform(stage, runs)

    reproduction = Reproduction(tmp_path, failing)
    with pytest.raises(LingraftError, match=r"the disk is full.*lingraft graft .*goes on from here"):
        reproduction.run(plan.stages)
    assert [stage.command for stage in reproduction.missing(plan)] == ["graft"]
    reproduction.run(plan.stages)
    assert ran == ["train", "graft", "graft"]
    assert reproduction.missing(plan) == []


def test_a_run_that_was_removed_is_made_again(tmp_path: Path):
    plan = make_plan("masks", recipes()["masks"], "smoke", scales()["smoke"])
    reproduction = Reproduction(tmp_path, lambda stage, runs: None)
    stage: Stage = plan.stages[0]
    reproduction.run(plan.stages)  # the log says that all is done, but there are no runs
    assert reproduction.missing(plan) == plan.stages
    (stage.folder(reproduction.runs)).mkdir(parents=True)
    (stage.folder(reproduction.runs) / "model.json").write_text("{}")
    assert stage not in reproduction.missing(plan)


def test_several_seeds_give_mean_and_deviation(tmp_path: Path):
    command(["reproduce", "weights", "--scale", "smoke", "--seeds", "2", "--row", "lines", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "weights" / "result.json").read_text())["results"]
    (result,) = [row["measured"]["sa"] for row in rows if row["runs"]]
    assert len(result["seeds"]) == 2
    assert result["mean"] == pytest.approx(sum(result["seeds"]) / 2)
    assert result["deviation"] == pytest.approx(abs(result["seeds"][0] - result["seeds"][1]) / 2**0.5)
    text = (tmp_path / "weights" / "table.md").read_text()
    assert "±" in text
    # the table is whole: rows that were not run say so, and how to
    left = [line for line in text.splitlines() if line.startswith("- not run, about ")]
    assert left
    assert all("`lingraft reproduce weights --scale smoke --network " in line for line in left)
    assert text.count("| not run |") >= len(left)
    # another row, one seed: what was measured before stays, and the new row has its figures
    row = left[-1].partition("--row ")[2].strip("'`")
    command(["reproduce", "weights", "--scale", "smoke", "--row", row, "--out", str(tmp_path)])
    again = (tmp_path / "weights" / "table.md").read_text()
    assert "±" in again
    assert ", 2 seeds |" in again
    assert left[-1] not in again


@pytest.mark.parametrize("scale", scales())
def test_every_option_of_a_recipe_is_one_of_its_function(scale: str):
    for name, recipe in recipes().items():
        for stage in make_plan(name, recipe, scale, scales()[scale]).stages:
            function = train if stage.command == "train" else FUNCTIONS[stage.command]
            assert set(keywords(stage.options)) <= set(inspect.signature(function).parameters), stage


def test_the_runs_say_which_command_does_the_same(smoke: Path):
    line = next(line for line in read_lines(smoke / "stages.jsonl") if line["command"] == "graft")
    run = Run(smoke / "runs" / line["run"])
    assert line["line"] in [record["command"] for record in run.commands()]


def test_unknown_names_are_refused():
    with pytest.raises(LingraftError, match="Did you mean 'criterion'"):
        command(["reproduce", "criterium"])
    with pytest.raises(LingraftError, match="unknown scale"):
        command(["reproduce", "main", "--scale", "tiny"])


def test_the_list_tells_times(capsys: pytest.CaptureFixture[str]):
    command(["reproduce", "--list", "--json"])
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == list(recipes())
    assert all(each["minutes"]["paper"] > 0 for each in listed)
