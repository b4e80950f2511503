"""Answers as text."""

import numpy as np
import pytest

from lingraft import LingraftError
from lingraft.formats.answer import Answer, Counterexample, read_counterexample


def test_answers_as_text() -> None:
    found = Counterexample(np.array([0.1, 1e-9]), np.array([2.5], np.float32))
    text = str(Answer("sat", counterexample=found))
    assert text == "sat\n((X_0 0.1)\n(X_1 0.000000001)\n(Y_0 2.5))"
    assert read_counterexample(text, 2).tolist() == [0.1, 1e-9]
    assert str(Answer("unsat")) == "unsat"
    assert read_counterexample("unsat", 2) is None
    for inputs in (1, 3):
        with pytest.raises(LingraftError, match="2 inputs"):
            read_counterexample(text, inputs)
