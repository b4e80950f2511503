"""The wheel holds all that the package needs, and works where the repository is not."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

import lingraft

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without a network, as `make dist` does."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_it_holds_every_file_of_the_package_and_nothing_else(wheel):
    source = ROOT / "src"
    ours = {
        path.relative_to(source).as_posix()
        for path in (source / "lingraft").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == ours
    assert "lingraft/report/templates/page.html" in packed


def test_its_name_has_the_version_of_the_package(wheel):
    assert wheel.name.startswith(f"lingraft-{lingraft.__version__}-py3-none-any")


def test_it_works_away_from_the_repository(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import lingraft, torch; from lingraft.report.page import render; from lingraft.work.experiments import recipes;"
        "from lingraft.cli import app; from typer.testing import CliRunner;"
        "run = lingraft.save(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3), torch.nn.ReLU()).eval(), 'r', (1, 2, 2));"
        "lingraft.write_report([run], 'report.html'); assert CliRunner().invoke(app, ['reproduce', '--list']).exit_code == 0;"
        "print(lingraft.__file__)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path / "site")
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_citation_names_this_version_and_the_paper():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == lingraft.__version__
    assert cited["authors"] == [{"name": "The lingraft authors"}]
    assert cited["preferred-citation"]["title"].startswith("Linearity Grafting")


def test_the_changes_have_this_version():
    assert f"## {lingraft.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
