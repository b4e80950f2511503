"""Settings of grafting, and the presets that they start from."""

import pytest

from lingraft import LingraftError
from lingraft.grafting import FineTuning, GraftingConfig, fine_tuning_defaults
from lingraft.grafting.config import PRESETS, grafting_preset


def test_the_paper_s_preset_is_what_the_settings_are_by_default() -> None:
    training, tuning = fine_tuning_defaults(0.1), FineTuning(fine_tuning_defaults(0.1))
    assert grafting_preset("paper", "sgd") == {
        "epochs": training.epochs,
        "lr": training.lr,
        "line_lr": tuning.line_lr,
        "significance": GraftingConfig(0.1).significance,
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_adam_has_rates_of_its_own(preset: str) -> None:
    sgd, adam = grafting_preset(preset, "sgd"), grafting_preset(preset, "adam")
    assert adam["lr"] < sgd["lr"]
    assert adam["line_lr"] < sgd["line_lr"]
    assert {**adam, "lr": 0, "line_lr": 0} == {**sgd, "lr": 0, "line_lr": 0}


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(LingraftError, match="Did you mean 'laptop'"):
        grafting_preset("labtop", "sgd")
