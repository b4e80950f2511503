"""Many boxes with margins of their own: what is called easy is true, and what is easy is found."""

import pytest
import random_networks as nets
import torch
from hidden_spikes import OPERATIONS, POINT, Spike
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.solver.budget import Budget
from lingraft.solver.many_boxes import ManyBoxes
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.rounding import Sizes


def _many(seed: int, above: float, still: bool = False) -> tuple[Network, ManyBoxes, Tensor]:
    """Twenty boxes, each with two sets of two functions; and the lowest margin of each at points of it.

    If `still`, one of the three inputs is fixed in every box, in most of them the second. One of the functions of each set is `above` its lowest value at these points, the other far below.
    """
    model, shape = nets.vector(seed, hidden=(6, 5))
    network = Network.from_module(model, shape)
    generator = torch.Generator().manual_seed(seed)
    lower = torch.rand(20, 3, generator=generator, dtype=torch.float64)
    upper = lower + 0.3 * torch.rand(20, 3, generator=generator, dtype=torch.float64)
    if still:
        fixed = torch.where(torch.arange(20) < 17, 1, seed % 3)
        upper[torch.arange(20), fixed] = lower[torch.arange(20), fixed]
    spec = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    index = torch.randint(0, 4, (20, 2, 2), generator=generator)
    values = torch.stack(
        [model(nets.points(Region(*b), seed, 200, model)) @ spec.T for b in zip(lower, upper, strict=True)]
    )
    lowest = values.detach().amin(1)
    shift = above - lowest.gather(1, index.flatten(1)).view(20, 2, 2)
    shift[:, :, 1] -= 100
    parts = values.detach().gather(2, index.flatten(1)[:, None].expand(-1, values.shape[1], -1))
    margins = (parts.unflatten(2, (2, 2)) + shift[:, None]).amax(3).amin(2).amin(1)
    return network, ManyBoxes(lower, upper, spec, index, shift), margins


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), still=st.booleans())
def test_what_is_easy_is_true(seed: int, still: bool) -> None:
    for above in (0.2, 0.0, -0.01):
        network, many, margins = _many(seed, above, still)
        easy = many.easy(network, Sizes(network), Budget())
        assert not bool((easy & (margins <= 0)).any())


@pytest.mark.parametrize("still", [False, True])
@pytest.mark.parametrize("above", [1.0, 0.01])
def test_margins_are_easy(above: float, still: bool) -> None:
    network, many, margins = _many(3, above, still)
    assert bool((margins > 0).all())
    assert bool(many.easy(network, Sizes(network), Budget()).all())


def test_nothing_is_easy_without_time() -> None:
    network, many, _ = _many(3, 1.0)
    assert not bool(many.easy(network, Sizes(network), Budget(0)).any())


def test_points_are_boxes() -> None:
    network, many, _ = _many(3, 0.5)
    many.upper = many.lower.clone()
    many.upper[:2] += 0.01
    values = network.forward(many.lower) @ many.spec.T
    margins = (values.gather(1, many.index.flatten(1)).view_as(many.shift) + many.shift).amax(2).amin(1)
    many.shift[5:8] -= margins[5:8, None, None] + 0.1
    expected = torch.ones(20, dtype=torch.bool)
    expected[5:8] = False
    assert torch.equal(many.easy(network, Sizes(network), Budget()), expected)


class Pole(nn.Module):
    """1/(x₁ − x₂ + 10⁻¹⁷) is beyond what rounding leaves of it where x₁ = x₂; plus x₀."""

    def __init__(self) -> None:
        super().__init__()
        self.apart = nn.Linear(2, 1).double()
        with torch.no_grad():
            self.apart.weight.copy_(torch.tensor([[1.0, -1.0]]))
            self.apart.bias.fill_(1e-17)

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1] - 1 / self.apart(x[:, 1:])


def test_a_pole_in_what_does_not_move_is_not_easy() -> None:
    network = Network.from_module(Pole().eval(), (3,))
    lower = torch.tensor([[0.0, 0.3, 0.3], [0.0, 0.3, 0.8]]).double()
    upper = lower + torch.tensor([1.0, 0.0, 0.0]).double()
    index, shift = torch.zeros(2, 1, 1, dtype=torch.int64), torch.zeros(2, 1, 1).double()
    many = ManyBoxes(lower, upper, torch.ones(1, 1).double(), index, shift)
    assert many.easy(network, Sizes(network), Budget()).tolist() == [False, True]


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_box_that_hides_a_counterexample_is_never_easy(name: str) -> None:
    """Twenty boxes in which one input moves; a narrow spike is in one of them. No attack looks for it here."""
    network = Network.from_module(Spike(name, 40.0), (2,))
    at = torch.linspace(-1, 1, 20, dtype=torch.float64)
    at[7] = POINT[1]
    ends = [torch.stack([torch.full_like(at, side), at], 1) for side in (-1.0, 1.0)]
    zeros = torch.zeros(20, 1, 1)
    many = ManyBoxes(*ends, torch.tensor([[1.0, -1.0]]).double(), zeros.long(), zeros.double())
    easy = many.easy(network, Sizes(network), Budget())
    assert not bool(easy[7])
    # on intervals these have poles, which leave nothing known of what is beside them
    assert name in ("reciprocal", "square root") or int(easy.sum()) == 19
