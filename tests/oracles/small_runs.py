"""Run folders for tests: made without training, and compared."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from lingraft.files import read_lines
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run


def untrained_run(folder: Path) -> tuple[Run, nn.Module]:
    """A run of a network for digits, and the network: random weights, never measured."""
    torch.manual_seed(0)
    model = zoo.build("digits-cnn", mean=[0.3], std=[0.4])
    run = Run(folder)
    run.write_description(
        ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10, mean=[0.3], std=[0.4])
    )
    run.save_weights(model)
    return run, model


def assert_same_run(one: Path, other: Path) -> None:
    """Weights, checkpoint and history of two run folders are the same, but for seconds."""
    a, b = tensors_of(one), tensors_of(other)
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
    histories = [
        [{k: v for k, v in record.items() if k != "seconds"} for record in read_lines(folder / "history.jsonl")]
        for folder in (one, other)
    ]
    assert histories[0] == histories[1]
    assert histories[0]


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """All tensors of weights and checkpoint, by file and name."""
    return {
        f"{file}/{k}": v
        for file in ("checkpoint", "model")
        for k, v in load_file(folder / f"{file}.safetensors").items()
    }
