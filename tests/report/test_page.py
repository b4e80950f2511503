"""The page in a real browser."""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from lingraft.files import read_lines
from lingraft.report.colors import COLORS
from lingraft.report.write import write_report
from lingraft.runs import Run

PHONE, DESK = {"width": 380, "height": 780}, {"width": 1200, "height": 900}


class Opened:
    """A page, and everything that it complained about or asked the network for."""

    def __init__(self, chromium: Any, path: Path, viewport: dict[str, int], **options: Any):
        self.page = chromium.new_page(viewport=viewport, **options)
        self.page.set_default_timeout(10_000)
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def check(self) -> None:
        assert self.messages == []
        outside = [url for url in self.requests if not url.startswith(("file:", "data:"))]
        assert outside == []
        assert sum(url.startswith("file:") for url in self.requests) == 1


@pytest.fixture
def desk(chromium: Any, page_path: Path) -> Iterator[Any]:
    opened = Opened(chromium, page_path, DESK)
    yield opened.page
    opened.check()
    opened.page.close()


@pytest.fixture
def phone(chromium: Any, page_path: Path) -> Iterator[Any]:
    opened = Opened(chromium, page_path, PHONE, has_touch=True)
    yield opened.page
    opened.check()
    opened.page.close()


def verdicts(run: Run) -> list[str]:
    """Image by image; what came after its limit, as it may on a busy machine, is undecided."""
    latest = {
        record["index"]: "unknown"
        if record["verdict"] in ("verified", "falsified") and record["seconds"] > record["timeout"]
        else record["verdict"]
        for record in read_lines(run.verdicts_path)
    }
    return [latest[i] for i in sorted(latest)]


def choose(page: Any, name: str) -> None:
    page.get_by_label("Run", exact=True).select_option(label=next(
        text for text in page.locator("#run option").all_inner_texts() if text.startswith(name)
    ))  # fmt: skip


def test_all_images_are_shown_and_the_filter_works(desk: Any, runs: list[Run]) -> None:
    choose(desk, "base")
    expected = verdicts(runs[0])
    thumbs = desk.locator("#images button")
    assert thumbs.count() == len(expected)
    for name in ("verified", "falsified", "unknown", "misclassified"):
        desk.get_by_role("checkbox", name=re.compile(name)).uncheck()
    assert thumbs.count() == 0
    for name in ("verified", "falsified", "unknown", "misclassified"):
        box = desk.get_by_role("checkbox", name=re.compile(name))
        box.check()
        assert thumbs.count() == expected.count(name)
        assert desk.get_by_role("status").inner_text().startswith(f"{expected.count(name)} of {len(expected)} images")
        box.uncheck()


def test_proofs_have_a_headline_a_column_and_a_filter(desk: Any, runs: list[Run]) -> None:
    verified = verdicts(runs[1]).count("verified")
    assert (
        f"{verified} of {verified} proofs checked by the independent checker." in desk.locator(".headline").inner_text()
    )
    cells = desk.locator("#summary td[data-name='Proof']").all_inner_texts()
    assert cells == ["–", f"{verified} of {verified} checked"]
    choose(desk, "grafted")
    thumbs, proof = desk.locator("#images button"), desk.get_by_label("Proof", exact=True)
    for state, count in (("checked", verified), ("written", 0), ("none", 24 - verified), ("", 24)):
        proof.select_option(state)
        assert thumbs.count() == count, state
    proof.select_option("checked")
    thumbs.first.click()
    dialog = desk.get_by_role("dialog")
    assert "checked by the independent checker" in dialog.inner_text()
    dialog.get_by_role("button", name="base").click()
    assert thumbs.count() == 24, "nothing is filtered where one comes to by an image"
    assert "independent checker" not in dialog.inner_text()


def test_label_and_order(desk: Any) -> None:
    choose(desk, "grafted")
    desk.get_by_label("Label", exact=True).select_option("3")
    names = [thumb.get_attribute("aria-label") for thumb in desk.locator("#images button").all()]
    assert names
    assert all("label 3:" in name for name in names)
    desk.get_by_label("Label", exact=True).select_option("")
    desk.get_by_label("Order").select_option("seconds")
    slowest = desk.evaluate(
        "() => { const data = JSON.parse(document.getElementById('data').textContent);"
        " const images = data.runs.find((run) => run.name === 'grafted').images;"
        " return images.reduce((a, b) => (b.seconds > a.seconds ? b : a)).index; }"
    )
    assert desk.locator("#images button").first.get_attribute("aria-label").startswith(f"image {slowest},")


def test_an_image_opens_with_its_witness(desk: Any) -> None:
    choose(desk, "base")
    desk.locator("#images .falsified.thumb").first.click()
    dialog = desk.get_by_role("dialog")
    assert dialog.is_visible()
    assert "falsified" in dialog.inner_text()
    pictures = dialog.locator("img")
    assert pictures.count() == 3
    for picture in pictures.all():
        assert picture.get_attribute("alt")
        assert picture.evaluate("image => image.naturalWidth") == 8
    assert re.search(r"witness taken for \d", dialog.inner_text())
    assert "The same image in other runs" in dialog.inner_text()
    desk.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_an_image_opens_with_its_bounds(desk: Any) -> None:
    choose(desk, "grafted")
    desk.locator("#images .verified.thumb").first.click()
    dialog = desk.get_by_role("dialog")
    assert dialog.locator(".bounds tbody tr").count() in (0, 9)
    for word in ("decided by", "time", "domains"):
        assert word in dialog.inner_text()
    dialog.get_by_role("button", name="base").click()
    assert desk.locator("#run option:checked").inner_text().startswith("base")
    assert dialog.is_visible()


def test_it_works_with_the_keyboard_alone(desk: Any) -> None:
    desk.locator("#images button").first.focus()
    desk.keyboard.press("ArrowRight")
    assert desk.evaluate("document.activeElement.dataset.place") == "1"
    desk.keyboard.press("Enter")
    dialog = desk.get_by_role("dialog")
    assert "2 of 24" in dialog.inner_text()
    desk.keyboard.press("ArrowRight")
    assert "3 of 24" in dialog.inner_text()
    desk.keyboard.press("Escape")
    desk.wait_for_function("document.activeElement.dataset.place === '2'")  # the focus goes back to the image
    assert desk.locator("#images button[tabindex='0']").count() == 1


def test_details_are_folded_until_asked_for(desk: Any) -> None:
    assert desk.locator("#accuracies svg").is_visible()
    assert not desk.locator("#sites svg").is_visible()
    desk.get_by_role("navigation", name="Contents").get_by_role("link", name="Details").click()
    assert desk.locator("#sites svg").is_visible()
    desk.locator("#more > summary").click()
    assert not desk.locator("#sites svg").is_visible()


def test_an_address_that_names_a_folded_figure_unfolds_it(chromium: Any, page_path: Path) -> None:
    page = chromium.new_page()
    page.goto(f"{page_path.as_uri()}#sites")
    assert page.locator("#sites svg").is_visible()
    page.close()


def downloaded(page: Any, locator: Any) -> tuple[str, str]:
    """Name and text of what a click downloads."""
    with page.expect_download() as waiting:
        locator.click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_text(encoding="utf-8")


def test_tables_can_be_downloaded(desk: Any, runs: list[Run], tmp_path: Path) -> None:
    name, text = downloaded(desk, desk.locator("#summary").get_by_role("link", name="Download CSV"))
    assert name == "lingraft-summary.csv"
    assert text == write_report(runs, tmp_path / "t.csv").read_text(encoding="utf-8")
    name, text = downloaded(desk, desk.locator("#verdicts").get_by_role("button", name="Download CSV"))
    assert name == "lingraft-verdicts.csv"
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["run"], row["verdict"]) for row in rows] == [
        (run.path.name, verdict) for run in runs for verdict in verdicts(run)
    ]


def test_figures_can_be_downloaded(chromium: Any, page_path: Path) -> None:
    opened = Opened(chromium, page_path, DESK, color_scheme="dark")
    figures = opened.page.locator("figure:has(> svg)")
    buttons = opened.page.get_by_role("button", name=re.compile("Download as SVG"), include_hidden=True)
    assert buttons.count() == figures.count() > 10
    name, text = downloaded(opened.page, opened.page.locator("#accuracies").get_by_role("button"))
    assert re.fullmatch(r"accuracies-digits-ε-0\.05\.svg", name)
    picture = ElementTree.fromstring(text)
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert picture.get("width").endswith("pt")
    assert "var(" not in text
    assert COLORS["ink"][0] in text, "a file is for light paper, also when saved in dark mode"
    opened.check()
    opened.page.close()


def test_every_control_has_a_name(desk: Any) -> None:
    nameless = desk.evaluate(
        "() => [...document.querySelectorAll('button, select, input')].filter((e) =>"
        " !(e.labels && e.labels.length) && !e.getAttribute('aria-label') && !e.textContent.trim()).length"
    )
    assert nameless == 0


CUT_OFF = """() => [...document.querySelectorAll('body *')].filter((e) => {
  if (e.closest('.skip, thead, dialog:not([open]), details:not([open])')) return false;
  const box = e.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map((e) => e.tagName + '.' + e.getAttribute('class'))"""


def test_nothing_is_cut_off_on_a_phone(phone: Any) -> None:
    assert phone.evaluate("document.documentElement.scrollWidth") <= 380
    assert phone.evaluate("innerWidth") == 380
    assert phone.evaluate(CUT_OFF) == []
    phone.locator("#more > summary").tap()
    assert phone.evaluate(CUT_OFF) == []
    phone.locator("#summary summary").tap()
    phone.locator("#images button").first.tap()
    assert phone.get_by_role("dialog").is_visible()
    assert phone.evaluate(CUT_OFF) == []
    assert phone.evaluate(
        "document.getElementById('details').scrollWidth <= document.getElementById('details').clientWidth"
    )


def brightness(page: Any, selector: str, what: str) -> float:
    color = page.locator(selector).first.evaluate(f"e => getComputedStyle(e).{what}")
    return sum(float(x) for x in re.findall(r"[\d.]+", color)[:3]) / (3 * 255)


def test_dark_mode(chromium: Any, page_path: Path) -> None:
    opened = Opened(chromium, page_path, DESK, color_scheme="dark")
    page = opened.page
    assert brightness(page, "body", "backgroundColor") < 0.2
    assert brightness(page, "body", "color") > 0.7
    assert brightness(page, "#time svg text", "fill") > 0.7, "pictures follow"
    page.get_by_role("button", name="Light mode").click()
    assert brightness(page, "body", "backgroundColor") > 0.9
    assert brightness(page, "#time svg text", "fill") < 0.3
    page.get_by_role("button", name="Dark mode").click()
    page.emulate_media(media="print")
    assert brightness(page, "body", "backgroundColor") > 0.9, "paper is white"
    assert brightness(page, "body", "color") < 0.3
    assert not page.locator("#controls").is_visible()
    opened.check()
    page.close()


def test_it_prints(desk: Any) -> None:
    assert desk.pdf(format="A4").startswith(b"%PDF")


def test_runs_without_verdicts(chromium: Any, bare: Run, tmp_path: Path) -> None:
    opened = Opened(chromium, write_report([bare], tmp_path / "r.html"), PHONE)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 380
    opened.check()
    opened.page.close()
