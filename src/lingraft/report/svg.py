"""Pictures inside a page: SVG that takes its colours and its font from the page."""

import re
from html import escape
from io import BytesIO

from lingraft.report.colors import COLORS
from lingraft.report.panels import Panel, draw, style

#: Dots an inch of what is drawn as points inside an SVG.
DPI = 160


def inline_svg(panel: Panel, prefix: str) -> str:
    """An <svg> element for a page. `prefix` makes the ids in it unique there."""
    buffer = BytesIO()
    figure = draw([panel])
    with style():
        figure.savefig(buffer, format="svg", dpi=DPI, transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", text)
    for name, (light, _) in COLORS.items():
        text = text.replace(light, f"var(--{name})")
    opening, rest = text.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None
    head = f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} role="img" aria-label="{escape(panel.alt)}">'
    return re.sub(r"\n\s*", "\n", head + rest).strip()
