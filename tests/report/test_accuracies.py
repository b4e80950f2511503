"""The bars that a report begins with."""

import pytest
from matplotlib.figure import Figure

from lingraft.report.accuracies import MEASURES, accuracies


def test_every_bar_is_as_long_as_its_share() -> None:
    networks = {
        "before": {"sa": 0.98, "ra": 0.84, "va": 0.0},
        "after": {"sa": 0.97, "ra": 0.78, "va": 0.7},
        "not attacked": {"sa": 0.9, "ra": None, "va": None},
    }
    panel = accuracies(networks)
    axes = Figure().subplots()
    panel.draw(axes)
    for container, field in zip(axes.containers, MEASURES, strict=True):
        assert [bar.get_width() for bar in container] == pytest.approx([n[field] or 0.0 for n in networks.values()])
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["98.0%", "97.0%", "90.0%", "84.0%", "78.0%", "", "0.0%", "70.0%", ""], "0 is measured, None is not"
    assert "after: SA 97.0%, RA 78.0%, VA 70.0%" in panel.alt
    assert "not attacked: SA 90.0%." in panel.alt
