"""The graph that bounds follow: up to date, and nothing in it is overlooked."""

from collections.abc import Callable

import pytest
import torch
from crown_margins import crown_margins
from torch import Tensor, nn

from lingraft import LingraftError
from lingraft.training.differentiable import (
    Interval,
    graph_of,
    interval_bounds,
)

Draw = Callable[..., tuple[Tensor, Tensor, Interval]]


def test_the_graph_follows_weights_and_mode(build: Callable[[str], nn.Module], some_box: Draw) -> None:
    model = build("batch-norm")
    _, _, box = some_box()
    graph = graph_of(model)
    first = interval_bounds(graph, *box).last.upper
    with torch.no_grad():
        model[0][0].weight.mul_(2)
    assert graph_of(model) is graph
    assert not torch.equal(interval_bounds(graph, *box).last.upper, first)
    model.train()
    assert graph.normalizes_by_batch


class Pooled(nn.Sequential):
    """Max pooling, which intervals bound and CROWN does not."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 3))


def test_what_cannot_be_bounded_is_named(some_box: Draw) -> None:
    _, labels, box = some_box()
    odd = nn.Sequential(nn.Flatten(), nn.LocalResponseNorm(2), nn.ReLU(), nn.Linear(16, 3)).double()
    with pytest.raises(LingraftError, match=r"layer '1' \(LocalResponseNorm\)"):
        interval_bounds(graph_of(odd), *box)
    pooled = Pooled().double()
    with pytest.raises(LingraftError, match="max pooling"):
        crown_margins(pooled, box, labels)


@pytest.mark.parametrize(
    ("change", "lowest", "highest"),
    [
        (lambda x: torch.sub(x, other=2 * x), -2.0, 1.0),
        (lambda x: torch.mul(x, other=torch.tensor(-1.0)), -1.0, 0.0),
        (lambda x: torch.add(x, x, alpha=-3), -3.0, 1.0),
        (lambda x: torch.div(x, 2.0, rounding_mode="floor"), None, None),
    ],
)
def test_named_arguments_are_not_overlooked(
    change: Callable[[Tensor], Tensor], lowest: float | None, highest: float | None
) -> None:
    """A difference is not monotone in what is subtracted, and a quotient that is rounded is not linear."""

    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(change(x))

    if lowest is None:
        with pytest.raises(LingraftError, match="arguments that lingraft does not know"):
            interval_bounds(graph_of(Net()), torch.zeros(1, 2), torch.ones(1, 2))
        return
    found = interval_bounds(graph_of(Net()), torch.zeros(1, 2), torch.ones(1, 2)).sites["relu"]
    assert (found.lower.unique().tolist(), found.upper.unique().tolist()) == ([lowest], [highest])
