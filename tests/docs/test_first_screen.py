"""The picture of the README shows what the command beside it printed, and what the results say."""

import re
from pathlib import Path

from lingraft.work import demo

ROOT = Path(__file__).parents[2]


def shares(text: str) -> list[str]:
    return re.findall(r"\d+\.\d", text)


def section(page: str, heading: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_picture_printout_and_results_agree() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    printed = [shares(line)[:4] for line in readme.splitlines() if re.search(r"  SA +[\d.]+%   RA", line)]
    measured = [shares(line)[-4:] for line in section("docs/results.md", "The demo").splitlines() if "% |" in line]
    assert len(printed) == 2 + len(demo.RATIOS)
    assert printed == [row[:4] for row in measured], "SA, RA, VA, UNR"
    picture = (ROOT / "docs" / "images" / "demo.svg").read_text(encoding="utf-8")
    drawn = [float(share) for share in re.findall(r">(\d+\.\d)%</text>", picture)]
    robust = [[float(share) for share in row[:3]] for row in printed[1:]]
    assert drawn == [share for bars in zip(*robust, strict=True) for share in bars], "bar by bar: SA, RA, VA"


def test_the_page_tells_the_limits_of_the_demo() -> None:
    about = section("docs/results.md", "The demo").split("|")[0]
    assert f"±{demo.EPS}" in about
    assert f"first {demo.IMAGES} for VA, {demo.TIMEOUT:g} s an image" in about
