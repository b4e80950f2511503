"""What is made of three lines: pieces, lines to start from, and bounds in the verifier that are those of the function."""

import pytest
import torch
from torch import nn

import lingraft
from lingraft import LingraftError
from lingraft.model.activations import Activation
from lingraft.model.activations.clipped import HARDSIGMOID, RELU6, clamp, clamp_max, clamp_min, hardtanh
from lingraft.solver.intervals import interval_bounds
from lingraft.solver.network import Network


@pytest.mark.parametrize(
    ("record", "start"),
    [
        (RELU6, (0.4, 0.0)),
        (hardtanh(), (1.0, 0.0)),
        (clamp_min(0.5), (0.4, 0.3)),
        (clamp_max(-1.0), (0.4, -0.6)),
        (clamp(None, 2.0), (1.0, 0.0)),
        (HARDSIGMOID, (1 / 6, 0.5)),
    ],
)
def test_lines_to_start_from(record: Activation, start: tuple[float, float]) -> None:
    assert record.start == pytest.approx(start)


@pytest.mark.parametrize("ends", [(1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0)])
def test_what_is_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(LingraftError, match=r"is a constant|gives no numbers"):
        clamp(*ends)
    with pytest.raises(LingraftError, match="takes numbers"):
        clamp_min(torch.zeros(3))  # type: ignore[arg-type]


@pytest.mark.parametrize("layer", [nn.ReLU6(), nn.Hardtanh(-0.5, 2.0), nn.Hardsigmoid()], ids=repr)
def test_intervals_of_the_verifier_are_those_of_the_function(layer: nn.Module) -> None:
    """Written as one ReLU inside of another; as a sum of two they would be as wide as both together."""
    identity = nn.Linear(4, 4)
    with torch.no_grad():
        identity.weight.copy_(torch.eye(4))
        identity.bias.zero_()
    network = Network.from_module(nn.Sequential(identity, layer, identity, nn.ReLU()).double().eval(), (4,))
    lower = torch.tensor([[-20.0, -3.0, 0.5, 7.0]], dtype=torch.float64)
    upper = torch.tensor([[30.0, 0.2, 9.0, 8.0]], dtype=torch.float64)
    last = interval_bounds(network, lower, upper)[network.sites[-1]]
    for found, end in zip(last, (lower, upper), strict=True):
        torch.testing.assert_close(found, layer(end.clone()), rtol=0, atol=1e-9)


def test_an_activation_of_two_bends_is_one_site() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU6(), nn.Linear(5, 2)).double().eval()
    (site,) = lingraft.sites(model, (3,))
    assert (site.name, site.kind, site.shape) == ("1", "relu6", (5,))
    network = Network.from_module(model, (3,))
    assert (len(network.sites), len(network.bends), network.neurons) == (2, 1, 5)
    image = torch.rand(3, dtype=torch.float64)
    ((lower, upper),) = lingraft.bounds(model, lingraft.Region(image - 1, image + 1)).values()
    z = model[0]((image + 2 * torch.rand(200, 3, dtype=torch.float64) - 1).double()).detach()
    assert bool((z >= lower - 1e-9).all() and (z <= upper + 1e-9).all())
    assert float((lower - z.amin(0)).abs().max()) < 1.5


@pytest.mark.parametrize("layer", [nn.ReLU6(), nn.Hardtanh()], ids=repr)
def test_ends_that_were_set_later_are_those_that_are_verified(layer: nn.ReLU6 | nn.Hardtanh) -> None:
    """Torch computes a ReLU6 as a Hardtanh, with ends that can be set, though nobody can give them when making it."""
    layer.min_val, layer.max_val = -0.5, 3.0
    model = nn.Sequential(nn.Linear(1, 1), layer, nn.Linear(1, 1)).double().eval()
    for linear in (model[0], model[2]):
        nn.init.ones_(linear.weight)
        nn.init.zeros_(linear.bias)
    (site,) = lingraft.sites(model, (1,))
    assert site.kind == "hardtanh"
    network = Network.from_module(model, (1,))
    z = torch.linspace(-9, 9, 37, dtype=torch.float64)[:, None]
    torch.testing.assert_close(network.forward(z), model(z).detach())
    lower, upper = lingraft.bounds(model, lingraft.Region(torch.tensor([2.0]), torch.tensor([8.0]))).outputs
    assert (float(lower), float(upper)) == pytest.approx((2.0, 3.0))
    layer.min_val = 3.0
    with pytest.raises(LingraftError, match="is a constant"):
        lingraft.sites(model, (1,))
