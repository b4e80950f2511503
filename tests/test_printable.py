"""What comes from files is shown, but cannot act on a terminal."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from lingraft.printable import duration, printable


@given(st.text(st.characters(codec=None)))
def test_nothing_that_acts_is_left(text):
    shown = printable(text)
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    shown.encode()  # no lone surrogates
    assert printable(shown) == shown


def test_what_is_ordinary_stays():
    assert printable("ε ≤ 0.1: 图像 7, café") == "ε ≤ 0.1: 图像 7, café"
    assert printable("a\x1b[31m\u202eb\nc\ud800") == "a\\x1b[31m\\u202eb\\nc\\ud800"


def test_durations():
    said = {3: "3 s", 90.0: "90 s", 700: "12 min", 52950: "14.7 h", 86400 * 3: "3 days"}
    assert {seconds: duration(seconds) for seconds in said} == said
