"""settings.yaml: what is written is read again, and what is wrong is named."""

from pathlib import Path

import pytest
import torch

from lingraft import LingraftError
from lingraft.settings_file import read_settings, write_settings

KNOWN = ["eps", "milestones", "lr", "model", "flag", "weight_decay", "mask"]


def test_what_is_written_is_read_again(tmp_path: Path):
    path = tmp_path / "settings.yaml"
    options = {
        "eps": 2 / 255,
        "milestones": (100, 150),
        "lr": 1e-5,
        "model": torch.nn.ReLU(),
        "flag": True,
        "mask": None,
    }
    write_settings(path, "train", options)
    assert "lingraft train --config settings.yaml" in path.read_text()
    assert "not in this file: model" in path.read_text()
    assert read_settings(path, KNOWN) == {"eps": 2 / 255, "milestones": "100,150", "lr": 1e-5, "flag": True}


def test_names_as_on_the_command_line_lists_and_empty_values(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("weight-decay: 5.0e-4\nmilestones: [3, 5]\nlr:\n")
    assert read_settings(path, KNOWN) == {"weight_decay": 5e-4, "milestones": "3,5"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr: 0.1\nepoch: 3\nspeed: 2\n", "settings that there are not: epoch, speed. There are eps"),
        ("", "holds no settings"),
        ("- lr\n", "holds no settings"),
        ("lr: [1, ", "is not YAML"),
        ("lr: !!python/object/apply:os.getcwd []\n", "is not YAML"),
        ("lr: {a: 1}\n", "lr must be a number"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(LingraftError, match=message):
        read_settings(path, KNOWN)


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(LingraftError, match="Check the path of --config"):
        read_settings(tmp_path / "none.yaml", KNOWN)
