"""What is verified is the model: whatever the network would not show is refused, and both are compared in every region."""

from collections.abc import Callable
from typing import Any

import pytest
import random_networks as nets
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from random_layers import KINDS
from torch import Tensor, fx, nn
from torch.nn.utils import parametrize, prune

import lingraft
from lingraft import LingraftError
from lingraft.model import zoo
from lingraft.solver.agreement import Agreement
from lingraft.solver.network import Network
from lingraft.solver.nodes import Dense


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()


class Wrapped(nn.Module):
    """A network and a function of it and of the image."""

    def __init__(self, function: Callable[[nn.Module, Tensor], Tensor], net: nn.Module | None = None):
        super().__init__()
        self.function, self.net = function, net or _net()

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.net, x)


# --- what torch.fx does not see ------------------------------------------------------------------------------------

#: Small enough for a comparison that allows for rounding of any kind.
SHIFT = 3e-4


def _hooked(way: str) -> nn.Module:
    net = _net()
    if way == "layer":
        net[2].register_forward_hook(lambda module, given, out: out + SHIFT)
    elif way == "layer before":
        net[0].register_forward_pre_hook(lambda module, given: (given[0] + SHIFT,))
    else:
        net.register_forward_hook(lambda module, given, out: out + SHIFT)
    return net


def _replaced(part: int | None, name: str = "forward") -> nn.Module:
    net = _net()
    layer = net if part is None else net[part]
    method = getattr(layer, name)
    setattr(layer, name, lambda x: method(x) + SHIFT)
    return net


class Called(nn.Sequential):
    """Another __call__."""

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) + SHIFT


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (_hooked("layer"), "layer '2' .*hook"),
        (_hooked("layer before"), "layer '0' .*hook"),
        (_hooked("model"), "the model .*hook"),
        (_replaced(2), "forward of layer '2' .*replaced"),
        (_replaced(None), "forward of the model .*replaced"),
        (_replaced(2, "_call_impl"), "_call_impl of layer '2' .*replaced"),
        (Called(*_net()).eval(), "the model .*__call__"),
        (nn.Sequential(prune.l1_unstructured(nn.Linear(4, 3), "weight", 0.5)).eval(), r"'0' .*prune\.remove"),
        (nn.Sequential(nn.LazyLinear(3)).eval(), "'0' .*no weights yet"),
        (torch.jit.script(_net()), r"torch\.jit"),
        (nn.Sequential(torch.jit.script(_net()), nn.ReLU()).eval(), r"layer '0' .*torch\.jit"),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_what_is_not_in_the_graph_is_refused(model: nn.Module, message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        Network.from_module(model, (4,))


def test_forwards_replaced_in_torch_s_own_classes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = nn.Linear.forward
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: plain(self, x) + SHIFT)
    with pytest.raises(LingraftError, match=r"torch's own class of layer '0' \(Linear\)"):
        Network.from_module(_net(), (4,))


def test_hooks_on_all_modules_are_refused() -> None:
    hook = nn.modules.module.register_module_forward_hook(lambda module, given, out: out + SHIFT)
    try:
        with pytest.raises(LingraftError, match="hooks on all modules"):
            Network.from_module(_net(), (4,))
    finally:
        hook.remove()
    Network.from_module(_net(), (4,))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_quantized_models_are_refused() -> None:
    model = torch.ao.quantization.quantize_dynamic(_net(), {nn.Linear})
    with pytest.raises(LingraftError, match=r"'0' .*quantized"):
        lingraft.verify(model, torch.rand(1, 4), [0], eps=0.1, workers=0)


# --- what looks like something known and is not ---------------------------------------------------------------------


class Bent(nn.ReLU):
    """A ReLU with a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1 + SHIFT))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) * self.scale


class Shifted(nn.Linear):
    """A linear layer that does something more."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + SHIFT


class ShiftedConv(nn.Conv2d):
    """A convolution that does something more."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + SHIFT


def relu(x: Tensor) -> Tensor:
    return torch.relu(x) + SHIFT


fx.wrap("relu")


def _refused_or_equal(model: nn.Module, shape: tuple[int, ...]) -> None:
    try:
        network = Network.from_module(model, shape)
    except LingraftError:
        return
    images = torch.rand(9, *shape)
    torch.testing.assert_close(network.forward(images.double()).float(), model(images), rtol=1e-5, atol=1e-5)


def test_layers_derived_from_known_ones_are_not_taken_for_them() -> None:
    bent = Bent()
    parametrize.register_parametrization(bent, "scale", nn.Identity())
    for layer in (Bent(), bent):
        _refused_or_equal(nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(4, 3)).eval(), (4,))
    _refused_or_equal(nn.Sequential(Shifted(4, 4), nn.ReLU(), nn.Linear(4, 3)).eval(), (4,))
    _refused_or_equal(nn.Sequential(ShiftedConv(1, 2, 2), nn.ReLU(), nn.Flatten()).eval(), (1, 3, 3))


def test_functions_go_by_what_they_are_not_by_their_name() -> None:
    model = Wrapped(lambda net, x: net(relu(x))).eval()
    for work in (lambda: Network.from_module(model, (4,)), lambda: lingraft.sites(model, (4,))):
        with pytest.raises(LingraftError, match="'relu' that is not torch's"):
            work()


# --- values that leave the tensors ---------------------------------------------------------------------------------


def _asks(net: nn.Module, x: Tensor) -> Tensor:
    try:
        high = bool(x.sum() > 100)
    except Exception:
        high = False
    return -net(x) if high else net(x)


def _looks(net: nn.Module, x: Tensor) -> Tensor:
    if type(x) is Tensor and x.max() > 100:  # what torch.fx passes in is none
        return -net(x)
    return net(x)


def _is_tensor(net: nn.Module, x: Tensor) -> Tensor:
    return net(torch.where(x > 50, -x, x) if isinstance(x, Tensor) else x)


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda net, x: net(x) * torch.allclose(x, torch.full((4,), 9.0)), "allclose.*makes a bool"),
        (lambda net, x: net(x) + torch.equal(x, torch.full((4,), 9.0)), "equal.*makes a bool"),
        (lambda net, x: net(x) - net(x).sum().is_nonzero(), "batch|is_nonzero|bool"),
        (lambda net, x: net(x) * x.flatten(1)[:, 0].max().item(), "batch|item|float|max_1.*not supported"),
        (lambda net, x: -net(x) if x.sum() > 0 else net(x), "cannot trace"),
        (_asks, "cannot trace"),
        (_looks, "takes values out of a tensor"),
        (_is_tensor, "'gt'.*not supported"),
    ],
)
def test_values_computed_from_the_image_are_no_constants(forward: Any, message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        Network.from_module(Wrapped(forward).eval(), (4,))


def test_autocast_in_forward_is_refused() -> None:
    def forward(net: nn.Module, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return net(x)

    with pytest.raises(LingraftError, match="autocast"):
        Network.from_module(Wrapped(forward).eval(), (4,))


def test_a_model_that_asks_for_a_tensor_is_taken_as_it_is_with_images() -> None:
    def forward(net: nn.Module, x: Tensor) -> Tensor:
        net.seen = x  # type: ignore[assignment]
        return net(x * 2 if isinstance(x, Tensor) and torch.is_tensor(x) and not isinstance(x, nn.Parameter) else x)

    model, images = Wrapped(forward).eval(), torch.randn(5, 4)
    torch.testing.assert_close(lingraft.graft(model, {})(images), model(images))
    torch.testing.assert_close(Network.from_module(model, (4,)).forward(images), model(images))


class Drifting(nn.Module):
    """Something of the model is another after each call."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.net, self.how, self.calls = _net(), how, 0
        self.register_buffer("scale", torch.ones(1, 3))
        self.plain = torch.ones(1, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "in place":
            self.scale *= 1 + 1e-7
        elif self.how == "replaced":
            self.scale = self.scale + 1e-7
        elif self.how == "plain":
            self.plain.add_(1e-7)
        else:
            self.calls += 1
        return (self.net(x) if self.calls < 100 else -self.net(x)) * self.scale * self.plain


@pytest.mark.parametrize(
    ("how", "name"), [("in place", "scale"), ("replaced", "scale"), ("plain", "plain"), ("counted", "calls")]
)
def test_a_model_that_changes_itself_is_refused(how: str, name: str) -> None:
    model = Drifting(how).eval()
    with pytest.raises(LingraftError, match=f"changes its own '{name}'"):
        Network.from_module(model, (4,))
    with pytest.raises(LingraftError, match=f"changes its own 'net.{name}'"):
        Network.from_module(Wrapped(lambda net, x: net(x), Drifting(how)).eval(), (4,))


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: torch.max_pool2d(x, 2, 2, 0, 1, True),
        lambda x: F.max_pool2d(x, 2, 2, 0, 1, True),
        lambda x: F.avg_pool2d(x, 2, 2, 0, True),
        lambda x: F.max_pool2d(x, 2, ceil_mode=True),
    ],
)
def test_ceil_mode_is_seen_however_it_is_given(pool: Any) -> None:
    model = Wrapped(lambda net, x: pool(x).flatten(1), nn.Identity()).eval()
    images = torch.randn(5, 1, 5, 5)
    torch.testing.assert_close(Network.from_module(model, (1, 5, 5)).forward(images), model(images))


def test_pooling_with_all_arguments_in_their_order() -> None:
    model = Wrapped(lambda net, x: torch.max_pool2d(x, 3, 2, 1, 1, False).flatten(1), nn.Identity()).eval()
    images = torch.randn(5, 1, 5, 5)
    torch.testing.assert_close(Network.from_module(model, (1, 5, 5)).forward(images), model(images))


@pytest.mark.parametrize("forward", [lambda x: x.squeeze(0), lambda x: x.transpose(0, 1).flatten(1)])
def test_what_is_right_for_one_image_alone_is_refused(forward: Any) -> None:
    model = Wrapped(lambda net, x: net(forward(x.unsqueeze(1)))).eval()
    with pytest.raises(LingraftError, match=r"batch|does not take"):
        Network.from_module(model, (4,))


# --- the comparison --------------------------------------------------------------------------------------------------


def test_a_model_that_is_another_in_the_region_only_is_not_verified() -> None:
    """Nothing but the comparison in the region can tell."""

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        if type(x) is Tensor:  # what torch.fx passes in is none
            x = torch.where(x > 50, -x, x)
        return net(x)

    model = Wrapped(forward).eval()
    lower, upper = torch.full((1, 4), 60.0), torch.full((1, 4), 60.1)
    constraints = torch.tensor([[1.0, -1.0, 0.0]]), torch.tensor([1000.0])  # easily proven of the network
    (result,) = lingraft.verify(model, None, lower=lower, upper=upper, constraints=constraints, workers=0, timeout=5)
    assert (result.verdict, result.reason) == ("unknown", "numerical")
    assert "does not reproduce" in (result.error or "")


@pytest.mark.parametrize(
    "function",
    [
        lambda z: torch.exp(300 * z),  # overflows far from the region
        torch.sqrt,
        lambda z: 1 / torch.relu(z),
    ],
)
def test_where_a_model_gives_no_finite_numbers_nothing_is_compared(function: Callable[[Tensor], Tensor]) -> None:
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2)).eval()
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(2))
    model = Wrapped(lambda net, x: net[1](function(net[0](x))), net).eval()
    images = torch.full((1, 2), 0.1)
    (result,) = lingraft.verify(model, images, model(images).argmax(1), eps=1e-4, workers=0, timeout=20)
    assert result.verdict == "verified"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_differences_beyond_rounding_are_noticed(dtype: torch.dtype) -> None:
    model = _net().to(dtype)
    network = Network.from_module(model, (4,))
    region = lingraft.Region(torch.zeros(4), torch.ones(4))
    spec, offset = torch.tensor([[1.0, -1.0, 0.0]]), torch.zeros(1)
    assert Agreement(model, network).in_region(region, torch.rand(4), spec, offset) is None
    last = network.nodes[-1]
    assert isinstance(last, Dense)
    last.bias = last.bias + (1e-4 if dtype == torch.float32 else 1e-12) * torch.tensor([1, 0, 0]).double()
    assert "does not reproduce" in (Agreement(model, network).in_region(region, torch.rand(4), spec, offset) or "")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), dtype=st.sampled_from([torch.float32, torch.float64]), graft=st.booleans())
def test_rounding_alone_is_no_difference(seed: int, dtype: torch.dtype, graft: bool) -> None:
    kind = KINDS[seed % 4]
    model, shape = nets.conv(seed, None, kind) if seed % 3 else nets.vector(seed, kind)
    model = (nets.grafted(model, shape, seed) if graft else model).to(dtype)
    network, region = Network.from_module(model, shape), nets.box(shape, seed, 0.1)
    spec, offset = nets.margins(seed % 3), torch.zeros(2)
    assert Agreement(model, network).in_region(region, region.lower, spec, offset, seed=seed) is None


def test_rounding_is_measured_wherever_it_may_be_much() -> None:
    """A norm of two values that are almost equal divides by almost nothing: at few of the points, and not the first."""
    for seed in range(165, 175):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.Linear(4, 2)).double().eval()
        Network.from_module(model, (4,))


@pytest.mark.parametrize("name", ["cnn-b", "resnet-4b", "sigmoid-cnn", "digits-cnn"])
def test_networks_of_the_zoo_agree(name: str) -> None:
    torch.manual_seed(0)
    model, shape = zoo.build(name).eval(), zoo.MODELS[name].input_shape
    agreement = Agreement(model, Network.from_module(model, shape))
    region = lingraft.Region(torch.full(shape, 0.4), torch.full(shape, 0.5))
    classes = agreement.network.nodes[-1].size
    assert agreement.in_region(region, region.lower, torch.eye(classes), torch.zeros(classes)) is None


def test_a_model_that_changes_its_input_gets_copies() -> None:
    """The first look and the replay of a witness leave images and witness as they are."""

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        x -= 0.5
        x *= 4.0
        return net(x)

    model = Wrapped(forward).eval()
    images = torch.rand(20, 4, generator=torch.Generator().manual_seed(1))
    labels = model(images.clone()).argmax(1)
    before = images.clone()
    results = lingraft.verify(model, images, labels, eps=0.3, workers=0, timeout=5)
    assert torch.equal(images, before)
    assert {result.verdict for result in results} >= {"verified", "falsified"}
    for image, label, result in zip(images, labels, results, strict=True):
        if result.witness is not None:
            assert (result.witness - image).abs().max() <= 0.3 + 1e-6
            assert model(result.witness[None].clone()).argmax() != label


def test_evaluation_leaves_the_images_of_such_a_model_alone() -> None:
    def forward(net: nn.Module, x: Tensor) -> Tensor:
        x -= 0.5
        return net(x.flatten(1))

    model, images = Wrapped(forward).eval(), torch.rand(10, 1, 2, 2)
    before, labels = images.clone(), model(images.clone()).argmax(1)
    assert lingraft.evaluate(model, (images, labels), eps=0.01, attack="pgd").sa == 1
    assert torch.equal(images, before)
