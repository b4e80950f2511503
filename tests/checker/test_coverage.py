"""A property is proven only if every one of its boxes is."""

from dataclasses import replace

import numpy as np

from lingraft.checker.coverage import by_property, of_boxes, question, question_of
from lingraft.checker.format import Certificate, Part

ONE = Certificate(
    "a" * 64,
    constraints=(np.array([[1.0, 0], [0, 1], [1, 1], [1, 1]]), np.zeros(4)),
    group=2,
    lower=np.zeros((1, 2)),
    upper=np.ones((1, 2)),
)


def part(box: int, boxes: int, name: str = "b") -> Certificate:
    return replace(ONE, part=Part(name * 64, box, boxes))


def test_boxes_are_counted_for_each_property():
    checked = [(part(1, 2), True), (part(2, 2), False), (part(1, 1, "c"), True), (ONE, True), (part(2, 2), True)]
    first, second = by_property(checked)
    assert first.complete
    assert second.complete
    (first,) = by_property([(part(1, 3), True), (part(3, 3), False), (part(1, 3), True)])
    assert not first.complete
    assert str(first) == "1 of 3 boxes proven (not 2, 3): NOT proven"


def test_certificates_must_agree_on_the_number_of_boxes():
    for checked in ([part(1, 1), part(1, 2), part(2, 2)], [part(1, 2), part(2, 2), part(1, 1)]):
        (found,) = by_property((certificate, True) for certificate in checked)
        assert not found.complete
        assert "differ" in str(found)


def test_a_property_of_more_boxes_than_anyone_has():
    (found,) = by_property([(part(5, 1 << 39), True)])
    assert not found.complete
    assert f"1 of {1 << 39} boxes proven (not 1, 2, 3, 4, 6" in str(found)


def test_boxes_are_compared_number_by_number():
    sets = [np.array([[1.0, 1, 0]]), np.array([[0.0, 1, 0], [1, 0, 0]])]  # in another order, and without repetition
    asked = question(np.zeros(2), np.ones(2), sets)
    assert question_of(ONE) == asked
    assert of_boxes("b" * 64, [asked], [ONE]).complete
    others = [
        question(np.zeros(2), np.nextafter(np.ones(2), 2), sets),
        question(np.zeros(2), np.ones(2), sets[:1]),
        question(np.zeros(2), np.ones(2), [sets[0], sets[1] + 1e-12]),
    ]
    for other in others:
        assert not of_boxes("b" * 64, [other], [ONE]).complete
        both = of_boxes("b" * 64, [asked, other], [ONE])
        assert str(both) == "1 of 2 boxes proven (not 2): NOT proven"
    ball = Certificate("a" * 64, label=0, image=np.zeros(2), eps=1.0)
    assert not of_boxes("b" * 64, [asked], [ONE, ball]).complete
