"""`lingraft corners`, end to end on small networks: what it finds, what it verifies, and what it leaves alone."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from typer.testing import CliRunner

import lingraft
from lingraft import LingraftError
from lingraft.cli import app
from lingraft.data import load
from lingraft.files import read_json, read_lines
from lingraft.grafting.fine_tuning import describe_sites
from lingraft.model import zoo
from lingraft.report.study import Study
from lingraft.runs import ModelDescription, Run

pytestmark = pytest.mark.slow

EPS, REGULAR, VERIFY = 0.03, 8, 6
QUICK = ("--verify", VERIFY, "--regular", REGULAR, "--timeout", 60, "--workers", 0)


def steps(model: torch.nn.Module, count: int) -> None:
    """Train on a few digits."""
    data = load("digits", "train").take(300)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(count):
        optimizer.zero_grad()
        F.cross_entropy(model(data.pixels()), data.labels).backward()
        optimizer.step()


def save(path: Path, model: torch.nn.Module, **about: Any) -> Path:
    run = Run(path)
    settings = {"architecture": "digits-cnn-half", "input_shape": (1, 8, 8), "classes": 10, "data": "digits"}
    run.write_description(ModelDescription(**{**settings, "eps": EPS, **about}))
    run.save_weights(model)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three plain runs, p0 to p2, and g0 to g2, grafted from them at random and tuned a little."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        torch.manual_seed(seed)
        plain = zoo.build("digits-cnn-half")
        steps(plain, 20)
        save(folder / f"p{seed}", plain)
        mask = {site.name: torch.rand(site.shape) < 0.7 for site in lingraft.sites(plain, (1, 8, 8))}
        grafted = lingraft.graft(plain, mask, slope=0.3, input_shape=(1, 8, 8))
        steps(grafted, 5)
        save(folder / f"g{seed}", grafted, parent=str(folder / f"p{seed}"), grafted=describe_sites(grafted))
    return folder


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    """The same, not verified, to be changed."""
    return Path(shutil.copytree(trained, tmp_path / "runs", ignore=shutil.ignore_patterns("corners", "verdicts.jsonl")))


@pytest.fixture(scope="module")
def study(trained: Path) -> tuple[Path, dict[str, Any]]:
    """Runs with their verdicts, and what was printed."""
    folder = Path(shutil.copytree(trained, trained.with_name("study")))
    return folder, json.loads(call(folder, *QUICK, "--json"))


def invoke(folder: Path, *arguments: object, plain: str = "p0 p1 p2", grafted: str = "g0 g1 g2") -> Any:
    ours, theirs = ([str(folder / name) for name in names.split()] for names in (plain, grafted))
    return CliRunner().invoke(
        app, ["corners", *ours, "--against", *theirs, *map(str, arguments)], catch_exceptions=False
    )


def call(folder: Path, *arguments: object, **sides: str) -> str:
    done = invoke(folder, *arguments, **sides)
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def found(folder: Path, *arguments: object, **sides: str) -> list[int]:
    """The corner cases, nothing verified."""
    printed = json.loads(call(folder, "--verify", 0, "--regular", 0, "--json", *arguments, **sides))
    return [case["index"] for case in printed["corner_cases"]]


def records(path: Path) -> dict[int, dict[str, Any]]:
    lines = read_lines(path)
    assert len({line["index"] for line in lines}) == len(lines)
    return {line["index"]: line for line in lines}


def test_the_images_are_those_whose_modal_predictions_differ(study: tuple[Path, dict[str, Any]]) -> None:
    folder, printed = study
    test = load("digits", "test")
    sides = [
        [lingraft.load(folder / f"{kind}{seed}")(test.pixels()).argmax(1).tolist() for seed in range(3)]
        for kind in "pg"
    ]
    expected = {}
    for i in range(len(test)):
        modal = []
        for side in sides:
            counts = Counter(predicted[i] for predicted in side)
            modal.append(sorted(c for c in counts if counts[c] == max(counts.values())))
        if not set(modal[0]) & set(modal[1]):
            expected[i] = {"index": i, "label": int(test.labels[i]), "baselines": modal[0], "grafted": modal[1]}
    assert len(expected) > VERIFY
    assert printed["corner_cases"] == list(expected.values())
    assert (printed["images"], printed["data"], printed["eps"]) == (len(test), "digits", EPS)
    for name, side in zip(("baselines", "grafted"), sides, strict=True):
        for run, predicted in zip(printed[name], side, strict=True):
            right = torch.tensor(predicted) == test.labels
            assert run["regular"]["sa"] == pytest.approx(right.double().mean().item())
            assert run["corners"]["sa"] == pytest.approx(right[list(expected)].double().mean().item())
            assert (run["regular"]["images"], run["corners"]["images"]) == (len(test), len(expected))
        for which in ("corners", "regular"):
            shares = [run[which]["sa"] for run in printed[name]]
            assert printed["mean"][name][which] == {"sa": pytest.approx(sum(shares) / 3), "va": None}


def test_va_is_of_these_very_images(study: tuple[Path, dict[str, Any]]) -> None:
    folder, printed = study
    test = load("digits", "test")
    sets = {"regular": list(range(REGULAR)), "corners": [c["index"] for c in printed["corner_cases"][:VERIFY]]}
    counts: Counter[str] = Counter()
    for name, run in (("p0", printed["baselines"][0]), ("g0", printed["grafted"][0])):
        for which, index in sets.items():
            results = lingraft.verify(
                lingraft.load(folder / name), test.pixels(torch.tensor(index)), test.labels[index], eps=EPS, workers=0
            )
            verdicts = Counter(result.verdict for result in results)
            figures = run[which]["verification"]
            assert {name: figures[name] for name in verdicts} == verdicts
            assert (figures["images"], run[which]["va"]) == (len(index), verdicts["verified"] / len(index))
            counts += verdicts
    assert min(counts["verified"], counts["misclassified"]) > 0  # a test of something
    for run in (*printed["baselines"][1:], *printed["grafted"][1:]):
        assert run["corners"]["verification"] is run["regular"]["verification"] is None


def test_verdicts_on_corner_cases_are_kept_apart_from_those_that_a_report_counts(
    study: tuple[Path, dict[str, Any]],
) -> None:
    folder, printed = study
    corners = {c["index"] for c in printed["corner_cases"][:VERIFY]}
    for name, figures in (("p0", printed["baselines"][0]), ("g0", printed["grafted"][0])):
        run = Run(folder / name)
        assert set(records(run.verdicts_path)) == set(range(REGULAR))
        assert set(records(run.path / "corners" / "verdicts.jsonl")) == corners - set(range(REGULAR))
        (verification,) = Study(run, name).verifications
        assert verification.summary.va == figures["regular"]["va"]
        assert run.commands()[-1]["command"].startswith("lingraft corners")
    assert not (folder / "p1" / "verdicts.jsonl").exists()
    assert read_json(folder / "g0" / "corners" / "corners.json") == printed


def test_nothing_is_verified_twice(study: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, printed = study
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    files = [copy / name / kind for name in ("p0", "g0") for kind in ("verdicts.jsonl", "corners/verdicts.jsonl")]
    before = [file.read_bytes() for file in files]
    again = json.loads(call(copy, *QUICK, "--json", "-o", tmp_path / "own.json"))
    assert [file.read_bytes() for file in files] == before
    assert again["corner_cases"] == printed["corner_cases"]
    assert again["grafted"][0]["corners"] == printed["grafted"][0]["corners"]
    assert read_json(tmp_path / "own.json") == again
    # stopped in the middle of a line: only that image is done again
    cut = copy / "g0" / "corners" / "verdicts.jsonl"
    cut.write_bytes(before[3][:-10])
    assert (
        json.loads(call(copy, *QUICK, "--json"))["grafted"][0]["corners"]["va"] == again["grafted"][0]["corners"]["va"]
    )
    assert list(records(cut)) == [json.loads(line)["index"] for line in before[3].splitlines()]
    # a corner case that is later asked for as one of the first images is taken over, not verified again
    index, record = next(iter(records(cut).items()))
    call(copy, "--verify", 0, "--regular", index + 1, "--timeout", 60, "--workers", 0)
    taken = records(copy / "g0" / "verdicts.jsonl")
    assert set(taken) == set(range(index + 1))
    assert taken[index] == record
    # and one that `lingraft verify` has done is not done again as a corner case
    cut.unlink()
    call(copy, "--verify", 1, "--regular", 0, "--timeout", 60, "--workers", 0)
    assert not cut.exists()


def test_the_order_of_runs_does_not_matter(runs: Path) -> None:
    some = found(runs, plain="p0 p1", grafted="g0 g1")  # even sides: there are ties
    assert found(runs, plain="p1 p0", grafted="g1 g0") == some
    assert found(runs, "--images", some[1] + 1, plain="p0 p1", grafted="g0 g1") == some[:2]
    assert not (runs / "p0" / "verdicts.jsonl").exists()
    folders = {name: str(runs / name) for name in ("p0", "p1", "g0", "g1")}
    line = ["corners", folders["p0"], "--against", folders["g0"], "--verify", "0", "--against", folders["g1"]]
    line += ["--regular", "0", "--json", folders["p1"]]
    done = CliRunner().invoke(app, line, catch_exceptions=False)
    assert [case["index"] for case in json.loads(done.stdout)["corner_cases"]] == some


def test_every_run_is_verified_when_asked(runs: Path) -> None:
    few = ("--verify", 2, "--regular", 2, "--timeout", 60, "--workers", 0, "--every-run")
    shown = call(runs, *few, plain="p0 p1", grafted="g0")
    printed = json.loads(call(runs, *few, "--json", plain="p0 p1", grafted="g0"))
    shares = [run["regular"]["va"] for run in printed["baselines"]]
    assert printed["mean"]["baselines"]["regular"]["va"] == pytest.approx(sum(shares) / 2)
    assert "VA of the first 2 corner cases and the first 2 regular images" in shown
    change = 100 * (printed["grafted"][0]["corners"]["sa"] - printed["baselines"][0]["corners"]["sa"])
    assert f"({change:+.2f})" in shown


def test_one_network_on_a_side_is_warned_about(runs: Path) -> None:
    nothing = ("--verify", 0, "--regular", 0)
    assert "Name runs of several seeds" in invoke(runs, *nothing, plain="p0", grafted="g0 g1").stderr
    assert "warning" not in invoke(runs, *nothing).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--images", "100000"), "cannot take 100000"),
        (("--verify", "-1"), "cannot verify -1"),
        (("--timeout", "0"), "time limit"),
        (("--data", "mnits"), "Did you mean 'mnist'"),
        (("--eps", "x"), "not a number"),
    ],
)
def test_bad_options_say_what_to_do(runs: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        invoke(runs, *arguments)
    assert not (runs / "p0" / "verdicts.jsonl").exists()


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"eps": 0.1}, "differ in eps.*p0 has 0.03, .*odd has 0.1.*--eps"),
        ({"data": "mnist"}, "differ in data.*--data"),
        ({"classes": 9}, "differ in classes"),
        ({"input_shape": (1, 28, 28)}, "differ in input shape"),
        ({}, "p0 and .*odd hold the same weights"),
        ({"eps": None}, "says no eps"),
    ],
)
def test_runs_that_cannot_be_compared(runs: Path, about: dict[str, Any], message: str) -> None:
    save(runs / "odd", lingraft.load(runs / "p0"), **about)
    with pytest.raises(LingraftError, match=message):
        invoke(runs, grafted="odd")
    assert not (runs / "p0" / "verdicts.jsonl").exists()


def test_networks_that_agree_have_no_corner_cases(runs: Path) -> None:
    plain = lingraft.load(runs / "p0")
    nothing = {site.name: torch.zeros(site.shape, dtype=torch.bool) for site in lingraft.sites(plain, (1, 8, 8))}
    same = lingraft.graft(plain, nothing, input_shape=(1, 8, 8))
    save(runs / "same", same, grafted=describe_sites(same))
    with pytest.raises(LingraftError, match=r"no corner cases.*agree on all 353 images"):
        invoke(runs, plain="p0", grafted="same")


def test_a_run_against_itself_and_a_folder_that_is_none(runs: Path) -> None:
    with pytest.raises(LingraftError, match="hold the same weights"):
        invoke(runs, plain="p0", grafted="p0")
    with pytest.raises(LingraftError, match="not a run folder"):
        invoke(runs, grafted="g0 nothing")
    assert not (runs / "nothing").exists()
