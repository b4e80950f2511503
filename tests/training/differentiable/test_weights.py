"""Sizes of the weights behind a neuron, against what its width does to the next widths."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lingraft.training.differentiable import Interval, graph_of
from lingraft.training.differentiable.intervals import Propagation
from lingraft.training.differentiable.weights import outgoing_weights


def test_linear_layers_and_convolutions_by_hand(build: Callable[[str], nn.Module]) -> None:
    model = build("plain")
    found = list(outgoing_weights(graph_of(model), (1, 4, 4)).values())
    first, second = model[4].weight.detach().abs().sum(0), model[6].weight.detach().abs().sum(0)
    torch.testing.assert_close(found[0].flatten(), first)
    torch.testing.assert_close(found[1], second)


@pytest.mark.parametrize("name", ["functional", "batch-norm", "grafted"])
def test_a_wider_neuron_widens_what_follows_by_its_weights(build: Callable[[str], nn.Module], name: str) -> None:
    """Of every fifth neuron, with its output widened and that of all other sites held where they are."""
    graph = graph_of(build(name))
    weights = outgoing_weights(graph, (1, 4, 4))
    assert list(weights) == [site.name for site in graph.sites.values()]

    def total(wide: str = "", neuron: int = 0) -> Tensor:
        class Held(Propagation):
            def run_node(self, n):  # type: ignore[no-untyped-def]
                found = super().run_node(n)
                if n not in self.sites:
                    return found
                half = torch.ones_like(found.lower)
                if self.sites[n].name == wide:
                    half.view(-1)[neuron] += 1
                return Interval(-half, half)

        held, image = Held(graph), torch.zeros(1, 1, 4, 4, dtype=torch.float64)
        last = held.run(Interval(image, image))
        layer = graph.last_layer
        widths = [(x.upper - x.lower).sum() / 2 for x in held.found.values()]
        end = (last.upper - last.lower) / 2
        return torch.stack([*widths, (end if layer is None else end @ layer.weight.abs().T).sum()]).sum().detach()

    for site, values in weights.items():
        for neuron in range(0, values.numel(), 5):
            expected = float(total(site, neuron) - total())
            assert float(values.flatten()[neuron]) == pytest.approx(expected, abs=1e-9)
