"""The site: it builds without a warning, every page is in its navigation, and every public name in its reference."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import lingraft

ROOT = Path(__file__).parents[2]


def _pages(entries: list) -> list[str]:
    """The files of a navigation, at any depth."""
    found: list[str] = []
    for entry in entries:
        (value,) = entry.values()
        found += _pages(value) if isinstance(value, list) else [value]
    return found


def test_it_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "own-model" / "index.html").exists()


def test_every_page_is_in_the_navigation():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(_pages(settings["nav"])) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_every_public_name_is_in_the_reference():
    described = re.findall(r"^::: lingraft\.([\w.]+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.M)
    names = {path.split(".")[-1] for path in described}
    assert set(lingraft.__all__) - {"__version__"} <= names


def test_links_of_the_readme_lead_somewhere():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)#]+)", text) if "://" not in target]
    assert len(targets) > 5
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_pictures_of_the_verifier_are_drawn_from_any_network():
    made = runpy.run_path(str(ROOT / "docs" / "make_figures.py"))
    torch.manual_seed(0)
    plain = made["Plane"]().eval()
    mask = {site.name: torch.arange(20) % 2 == 0 for site in lingraft.sites(plain, (2, 1, 1))}
    models = {"before": plain, "after": lingraft.graft(plain, mask)}
    drawn = [made[name](models) for name in ("draw_pieces", "draw_matrices", "draw_stages")] + [made["draw_lines"]()]
    assert [len(figure.axes) for figure in drawn] == [2, 2, 2, 3]
    assert all(made["collapsed"](model).count <= 60 for model in models.values())


def test_the_pages_show_pictures_that_are_there():
    for page in (ROOT / "docs").glob("*.md"):
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (ROOT / "docs" / target).exists(), (page.name, target)
