"""`lingraft select`: its options; what it selects is in test_graft.py."""

import pytest

from lingraft import LingraftError
from lingraft.cli.select import parse_gammas


def test_gammas():
    assert parse_gammas("2,1.5,1,0") == (2.0, 1.5, 1.0, 0.0)
    assert parse_gammas("inf") == (float("inf"),)
    with pytest.raises(LingraftError, match="0 or above"):
        parse_gammas("2,-1")
