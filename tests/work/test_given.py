"""What is neither a model nor a run folder is refused with what to write."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import lingraft

DATA = torch.rand(2, 1, 3, 3), torch.tensor([0, 1])


@pytest.mark.parametrize("given", [nn.ReLU, lambda x: x, 3, None])
@pytest.mark.parametrize(
    "use",
    [
        lambda model: lingraft.verify(model, *DATA, eps=0.1),
        lambda model: lingraft.evaluate(model, DATA, eps=0.1),
        lambda model: lingraft.score(model, DATA, eps=0.1),
    ],
)
def test_what_is_no_model(use: Callable[[object], object], given: object) -> None:
    with pytest.raises(lingraft.LingraftError, match="made by calling its class"):
        use(given)


def test_a_model_in_double_precision_is_described(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2)).double()
    assert lingraft.save(model, tmp_path / "run", (4,), eps=0.1).describe().classes == 2
