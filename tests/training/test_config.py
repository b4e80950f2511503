"""Settings are checked when they are made."""

import pytest

from lingraft import LingraftError
from lingraft.training import PRESETS, TrainingConfig


def test_the_defaults_are_the_paper_s() -> None:
    config = TrainingConfig(eps=2 / 255)
    assert (config.method, config.fgsm_step, config.grad_align) == ("fat", 1.25, 0.2)
    assert (config.lr, config.momentum, config.weight_decay, config.batch) == (0.1, 0.9, 5e-4, 128)
    assert (config.epochs, config.schedule, config.milestones) == (200, "step", None)
    assert TrainingConfig(eps=2 / 255, **PRESETS["paper"]) == config


def test_presets_are_valid() -> None:
    for preset in PRESETS.values():
        TrainingConfig(eps=0.1, **preset)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eps": -0.1}, "eps must be at least 0"),
        ({"eps": float("nan")}, "eps"),
        ({"eps": "a bit"}, "eps is 'a bit', which is not a number"),
        ({"clip": (1.0, 0.0)}, "lowest value must be below"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"batch": 0}, "batch"),
        ({"lr": 0}, "lr must be above 0"),
        ({"lr": float("inf")}, "lr"),
        ({"momentum": 1}, "momentum must be below 1"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"grad_align": -1}, "grad_align"),
        ({"grad_align_share": 0}, "set grad_align to 0"),
        ({"grad_align_share": 1.5}, "grad_align_share"),
        ({"eps_factor": 0}, "eps_factor must be above 0"),
        ({"eps_factor": float("inf")}, "eps_factor"),
        ({"ramp": -1}, "ramp"),
        ({"epochs": 3, "warm_up": 1, "ramp": 2}, "leave none of 3 epochs"),
        ({"attack_steps": 0}, "attack_steps"),
        ({"validation_steps": 0}, "validation_steps"),
        ({"validation_images": 0}, "validation_images"),
        ({"method": "fast"}, "Did you mean 'fat'"),
        ({"schedule": "steps"}, "Did you mean 'step'"),
        ({"schedule": "cosine", "milestones": (3,)}, "milestones"),
    ],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        TrainingConfig(**{"eps": 0.1, **settings})  # type: ignore[arg-type]
