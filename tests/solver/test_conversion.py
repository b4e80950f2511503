"""The converted network computes what the model computes; what cannot be converted is an error that names it."""

from typing import Any

import pytest
import random_networks as nets
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft import LingraftError
from lingraft.solver.network import Network
from lingraft.solver.nodes import Convolution, Gather, Site

SEEDS = st.integers(0, 10**6)


def _equal(model: nn.Module, shape: tuple[int, ...], images: Tensor) -> Network:
    network = Network.from_module(model, shape)
    with torch.no_grad():
        torch.testing.assert_close(network.forward(images), model(images.clone()), rtol=1e-10, atol=1e-10)
    return network


@pytest.mark.parametrize("operation", ["conv", "batch norm", "average", "maximum", "residual", "concat", "pad", "affine",
                                       "move", "identity"])  # fmt: skip
@settings(max_examples=12, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(["relu", "leaky", "sigmoid", "tanh"]), graft=st.booleans())
def test_every_operation(operation: str, seed: int, kind: str, graft: bool) -> None:
    model, shape = nets.conv(seed, operation, kind)
    if graft:
        model = nets.grafted(model, shape, seed)
    network = _equal(model, shape, nets.points(nets.box(shape, seed, 1.0), seed, 4, model))
    seen = nets.preactivations(model, torch.zeros(1, *shape).double())
    public = [node for node in network.nodes if isinstance(node, Site) and node.public]
    assert [node.name for node in public] == list(seen)
    assert network.neurons == sum(z[0].numel() for z in seen.values())


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(["relu", "leaky", "sigmoid", "tanh"]), graft=st.booleans())
def test_vectors(seed: int, kind: str, graft: bool) -> None:
    model, shape = nets.vector(seed, kind)
    if graft:
        model = nets.grafted(model, shape, seed)
    _equal(model, shape, nets.points(nets.box(shape, seed, 2.0), seed, 8, model))


def test_float32_models_keep_their_own_numbers() -> None:
    """Numbers written in the model are used as a float32 model uses them, and not rounded in a float64 model."""
    for dtype in (torch.float32, torch.float64):
        model = nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(0.01), nn.Linear(2, 2)).to(dtype).eval()
        network = Network.from_module(model, (2,))
        scales = [node.weight.unique().tolist() for node in network.nodes if node.name in ("1.line", "1.bend")]
        slope = float(torch.tensor(0.01, dtype=dtype))
        assert scales == [[slope], [1 - slope]]


class _Module(nn.Module):
    def __init__(self, forward: Any, *layers: nn.Module):
        super().__init__()
        self.layers, self.function = nn.ModuleList(layers), forward
        self.register_buffer("noise", torch.rand(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def _converted(forward: Any, *layers: nn.Module, shape: tuple[int, ...] = (4,)) -> Network:
    model = _Module(forward, *layers).double().eval()
    return _equal(model, shape, torch.randn(20, *shape).double())


def test_in_place_activations_change_what_is_read_later() -> None:
    def activate(net: nn.Module, x: Tensor) -> Tensor:
        y = net.layers[0](x)  # type: ignore[index, operator]
        z = F.relu(y, inplace=True)
        return y - 3 * z

    def through_another_name(net: nn.Module, x: Tensor) -> Tensor:
        y = net.layers[0](x)  # type: ignore[index, operator]
        same = net.layers[1](y)  # type: ignore[index, operator]
        z = y.relu_()
        return same - 3 * z

    def of_the_image(net: nn.Module, x: Tensor) -> Tensor:
        z = F.leaky_relu(x, -0.5, inplace=True)
        return net.layers[0](z) + x  # type: ignore[index, operator]

    def added(net: nn.Module, x: Tensor) -> Tensor:
        y = net.layers[0](x)  # type: ignore[index, operator]
        z = y.add_(net.noise)
        return y + z

    for forward in (activate, through_another_name, of_the_image, added):
        _converted(forward, nn.Linear(4, 4), nn.Identity())

    def through_a_view(net: nn.Module, x: Tensor) -> Tensor:
        y = net.layers[0](x)  # type: ignore[index, operator]
        view = y.view(-1, 2, 2)
        z = y.relu_()
        return view.flatten(1) - 3 * z

    with pytest.raises(LingraftError, match=r"relu_.*changes 'view' in place"):
        _converted(through_a_view, nn.Linear(4, 4))


def test_a_moved_value_may_be_given_by_its_name() -> None:
    _converted(lambda net, x: torch.flatten(input=x.view(-1, 2, 2), start_dim=1))


def test_padding_is_merged_only_where_it_can_be() -> None:
    padded = nn.Sequential(nn.ZeroPad2d((2, 1, 0, 1)), nn.Conv2d(2, 3, 3, padding=1, stride=2), nn.ReLU(), nn.Flatten())
    network = _equal(padded.double().eval(), (2, 5, 4), torch.randn(5, 2, 5, 4).double())
    assert [n.padding for n in network.nodes if isinstance(n, Convolution)] == [(1, 3, 2, 2)]
    assert not any(isinstance(n, Gather) and n.name != "_3" and -1 in n.index for n in network.nodes)
    # padding that something else reads as well stays
    both = _Module(lambda net, x: (net.layers[1](net.layers[0](x)) + net.layers[0](x)).flatten(1),
                   nn.ZeroPad2d(1), nn.Conv2d(1, 1, 3, padding=1))  # fmt: skip
    _equal(both.double().eval(), (1, 3, 3), torch.randn(5, 1, 3, 3).double())


def test_layers_straight_on_the_image_and_at_the_end() -> None:
    for layers in (
        [nn.ReLU(), nn.ReLU(), nn.Linear(4, 3)],
        [nn.Linear(4, 3), nn.ReLU()],
        [nn.Identity()],
        [nn.Linear(4, 3)],
        [nn.BatchNorm1d(4), nn.Sigmoid()],
    ):
        _equal(nn.Sequential(*layers).double().eval(), (4,), torch.randn(5, 4).double())


def test_a_value_used_twice_and_a_value_not_used() -> None:
    def forward(net: nn.Module, x: Tensor) -> Tensor:
        y = net.layers[0](x)  # type: ignore[index, operator]
        net.layers[1](y)  # type: ignore[index, operator]
        return torch.relu(y + y) - y

    network = _converted(forward, nn.Linear(4, 4), nn.Linear(4, 9))
    assert all(node.size == 4 for node in network.nodes)


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda net, x: torch.log_softmax(x, 1), "'log_softmax'"),
        (lambda net, x: torch.softmax(x, 0), "'softmax' .*images of a batch"),
        (lambda net, x: torch.softmax(x, 1, dtype=torch.float32), "'softmax' .*dtype"),
        (lambda net, x: x.view(-1, 2, 2) @ x.view(-1, 1, 2, 2), "'matmul' .*as many"),
        (lambda net, x: x @ x, "'matmul'|does not take images"),
        (lambda net, x: x**1.5, "'pow_1' .*whole number"),
        (lambda net, x: 2**x, "'pow_1' .*exponent"),
        (lambda net, x: x.view(-1, 2, 2) @ torch.ones(3, 2, 2), "'matmul' .*Use a matrix"),
        (lambda net, x: F.linear(x, x), "'linear' .*weights from the image"),
        (lambda net, x: x.max(1)[0][:, None], "'max_1' .*not supported"),
        (lambda net, x: x + x.unsqueeze(1), "broadcasts"),
        (lambda net, x: F.dropout(x, 0.5), "'dropout' .*eval"),
        (lambda net, x: F.dropout(x, 0.5, True), "'dropout' .*eval"),
        (lambda net, x: x.mean(0, keepdim=True), "'mean' .*batch"),
        (lambda net, x: x.mean(1), "logits"),
        (lambda net, x: x.reshape(-1), "batch"),
        (lambda net, x: x.view(-1, 2, 2), "logits"),
        (lambda net, x: net.noise + 1, "depends on the image"),
        (lambda net, x: torch.zeros_like(x) + x, "'zeros_like'"),
        (lambda net, x: x * x.sum(), "'sum_1' .*batch"),
        (lambda net, x: torch.div(x, 2, rounding_mode="floor"), "'div' .*arguments"),
        (lambda net, x: torch.add(x, 1, out=net.noise), "'add' .*out="),
        (lambda net, x: F.avg_pool2d(x.view(-1, 2, 2), 1).flatten(1), "'avg_pool2d' .*arguments"),
    ],
)
def test_unsupported_operations_are_named(forward: Any, message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        Network.from_module(_Module(forward).double().eval(), (4,))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.Upsample(scale_factor=2, mode="bicubic"), "bicubic"),
        (nn.BatchNorm2d(1, track_running_stats=False), "'0' .*running statistics"),
        (nn.LocalResponseNorm(2), "'0' .*LocalResponseNorm"),
        (nn.Conv1d(1, 1, 1), "does not take images of shape"),
        (nn.Softsign(), "'0' .*Softsign"),
    ],
)
def test_unsupported_layers_are_named(layer: nn.Module, message: str) -> None:
    model = nn.Sequential(layer, nn.Flatten()).double().eval()
    with pytest.raises(LingraftError, match=message):
        Network.from_module(model, (1, 4, 4))


def test_a_conversion_that_differs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it only shows on images outside the pixel range."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)).eval()
    with torch.no_grad():
        model[0].weight.abs_()
        model[0].bias.abs_()
    monkeypatch.setattr(Site, "forward", lambda self, z: z)  # forget the activations, which are all on in [0, 1]
    with pytest.raises(LingraftError, match="does not reproduce"):
        Network.from_module(model, (4,))
