"""What a certificate claims is said exactly, and cut only where people read it."""

import numpy as np

from lingraft.checker.format import Certificate, Part, box_hash, image_hash
from lingraft.checker.statement import in_words, statement


def test_a_ball_and_a_label():
    image = np.array([0.1, 1 / 3, 2**-30], np.float32)
    claim = Certificate("a" * 64, label=1, image=image, eps=2 / 255, clip=(0.0, 1.0))
    found = statement(claim, 3)
    assert found["region"]["center"] == [0.10000000149011612, 0.3333333432674408, 2**-30]
    assert found["region"]["eps"] == 2 / 255
    assert found["region"]["image_sha256"] == image_hash(image)
    assert found["holds"] == ["y1 > y0", "y1 > y2"]
    text = "\n".join(in_words(claim, 3))
    assert f"|x − image| ≤ {2 / 255!r} in every input, cut to 0.0 ≤ x ≤ 1.0" in text
    assert image_hash(image) in text
    assert "0.10000000149011612, 0.3333333432674408" in text
    assert "output 1 exceeds every other: y1 > y0, y2" in text
    claim.clip = None
    assert "cut to" not in "\n".join(in_words(claim, 3))


def test_a_box_and_constraints_in_groups():
    rows = np.array([[0.5, 0, 0, -1], [0, 0, 0, 0], [1, -1, 0, 0], [1, -1, 0, 0], [0, 0, -1, 0], [0, 0, 0.1, 0]])
    shifts = np.array([1.25, -2.0, 0.0, 0.0, 0.0, -0.3])
    lower, upper = np.array([0.0, -0.5]), np.array([0.25, 0.5])
    claim = Certificate(
        "a" * 64, constraints=(rows, shifts), group=2, lower=lower, upper=upper, part=Part("b" * 64, 2, 5)
    )
    found = statement(claim, 4)
    assert found["holds"] == ["0.5·y0 − y3 + 1.25 > 0 or −2.0 > 0", "y0 − y1 > 0", "−y2 > 0 or 0.1·y2 − 0.3 > 0"]
    assert found["part"] == {"property_sha256": "b" * 64, "box": 2, "boxes": 5}
    extent = {"smallest_width": 0.25, "largest_width": 1.0, "smallest_lower": -0.5, "largest_upper": 0.5}
    assert found["region"] == {"kind": "box", "sha256": box_hash(lower, upper), "inputs": 2, **extent}
    text = in_words(claim, 4)
    assert found["holds"][0] in text
    assert f"PART: box 2 of 5 of the property with sha256 {'b' * 64}" in text
    assert box_hash(lower, upper) != box_hash(lower, upper + 2.0**-40)


def test_people_see_the_beginning_and_how_much_there_is():
    rng = np.random.default_rng(0)
    rows, shifts = rng.standard_normal((60, 1000)), np.ones(60)
    claim = Certificate("a" * 64, constraints=(rows, shifts), group=3, image=rng.random((3, 32, 32)), eps=0.1)
    text = in_words(claim, 1000)
    assert "… (3072 inputs)" in text[1]
    assert "… (1000 terms) > 0 or " in text[2]
    assert text[-1] == "… and 8 more constraints, 20 in all"
    assert sum(map(len, text)) < 30_000
    full = statement(claim, 1000)
    assert len(full["holds"]) == 20
    assert "y999" in full["holds"][-1]
    assert len(full["region"]["center"]) == 3072
    claim = Certificate("a" * 64, label=7, image=np.zeros(3), eps=0.1)
    assert "… (999 others)" in in_words(claim, 1000)[2]
    assert len(statement(claim, 1000)["holds"]) == 999
