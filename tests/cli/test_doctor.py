"""`lingraft doctor` says what is here and what is missing."""

import importlib.metadata
import json

import pytest
from typer.testing import CliRunner

from lingraft.cli import app
from lingraft.work.environment import package_versions


@pytest.fixture
def answer(tmp_path, monkeypatch):
    monkeypatch.setenv("LINGRAFT_DATA", str(tmp_path))
    return CliRunner().invoke(app, ["doctor", "--json"], catch_exceptions=False)


def test_json_has_versions_machine_features_and_data(answer, tmp_path):
    found = json.loads(answer.stdout)
    assert found["versions"]["torch"] == importlib.metadata.version("torch")
    assert found["machine"]["usable_cores"] >= 1
    assert found["machine"]["free_memory_gib"] > 0
    assert found["data"] == {
        "folder": str(tmp_path),
        "states": {"digits": "complete", "mnist": "missing", "svhn": "missing", "cifar10": "missing"},
    }
    features = {feature["name"]: feature for feature in found["features"]}
    assert features["tests"]["available"]
    assert "compare --against marabou" in features
    assert all(feature["note"] for feature in found["features"])


def test_the_text_says_all_that_the_json_says(answer):
    found = json.loads(answer.stdout)
    shown = "".join(CliRunner().invoke(app, ["doctor"], catch_exceptions=False).stdout.split())  # without line breaks
    assert "lingraftdatafetchmnist" in shown
    for feature in found["features"]:
        assert f"{feature['name']}{feature['note']}".replace(" ", "") in shown


def test_versions_are_those_of_what_lingraft_requires():
    versions = package_versions()
    required = [line for line in importlib.metadata.requires("lingraft") if "extra ==" not in line]
    assert len(versions) == len(required) + 2  # and Python, and lingraft itself
