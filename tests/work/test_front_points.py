"""Which network to take for which accuracy."""

from lingraft.report.front_figure import front_panel
from lingraft.report.panels import draw
from lingraft.work import front_points
from lingraft.work.front_points import Tried, advice, on_front


def network(name: str, sa: float, verified: int) -> front_points.Tested:
    return front_points.Tested(name, f"runs/{name}", 4, sa, 1000, verified, 3, 50, 2.0)


ALL = [
    network("plain", 0.801, 5),
    network("worse", 0.70, 20),
    network("grafted", 0.745, 25),
    network("certified", 0.62, 35),
]


def test_the_front_by_rising_accuracy() -> None:
    assert [each.name for each in on_front(ALL)] == ["certified", "grafted", "plain"]


def test_a_sentence_for_each_on_the_front_or_for_the_accuracy_that_is_needed() -> None:
    said = advice(ALL)
    assert [line.split(":")[0] for line in said] == [
        "for SA ≥ 62.0 % take certified", "for SA ≥ 74.5 % take grafted", "for SA ≥ 80.1 % take plain",
    ]  # fmt: skip
    assert "VA 50.00% (95 % interval 37% to 63%), runs/grafted" in said[1]
    assert advice(ALL, 0.7)[0].startswith("for SA ≥ 70.0% take grafted")
    assert advice(ALL, 0.745)[0].startswith("for SA ≥ 74.5% take grafted")
    assert advice(ALL, 0.9)[0].startswith("no network has SA ≥ 90.0%; the nearest is plain")


def test_what_was_tried_is_read_back() -> None:
    tried = Tried("a", "key", "runs/a", 4, 0.7, 0.5, 0.1, 50, 2.0, 12.5)
    assert Tried.of({**tried.as_dict(), "more": 1}) == tried


def test_the_picture_has_a_point_with_its_interval_for_each() -> None:
    panel = front_panel([each.place for each in ALL], 0.72)
    assert "certified: SA 62.0%, VA 70.0%; grafted" in panel.alt
    assert "worse" not in panel.alt
    (axes,) = draw([panel]).axes
    assert [container.get_label() for container in axes.containers] == [each.name for each in ALL]
    (_, (lower, upper), _) = axes.containers[2].lines
    assert [round(float(cap.get_ydata()[0]), 2) for cap in (lower, upper)] == [0.37, 0.63]
