"""Norms and attention, traced as what they are made of: the same values, bounded, grafted and exported like the rest."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lingraft
from lingraft import LingraftError
from lingraft.model.tracing import trace
from lingraft.training.differentiable.graph import graph_of
from lingraft.training.differentiable.intervals import interval_bounds


class Encoder(nn.Module):
    """A block of a vision transformer behind patches, with attention of two heads."""

    def __init__(self, attend: Callable[["Encoder", Tensor], Tensor]):
        super().__init__()
        self.attend = attend
        self.patches, self.before = nn.Conv2d(1, 4, 2, 2), nn.LayerNorm(4)
        self.attention, self.between = nn.MultiheadAttention(4, 2, batch_first=True), nn.LayerNorm(4)
        self.first, self.second, self.head = nn.Linear(4, 6), nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.attend(self, self.before(x))
        x = x + self.second(torch.relu(self.first(self.between(x))))
        return self.head(x.mean(1))


def by_layer(net: Encoder, x: Tensor) -> Tensor:
    attended, _ = net.attention(x, x, x, need_weights=False)
    return attended


def by_function(net: Encoder, x: Tensor) -> Tensor:
    heads = x.unflatten(-1, (2, 2)).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, 2 * heads, heads, scale=0.3).transpose(1, 2).flatten(2)


class Normed(nn.Module):
    """One norm between a convolution and a linear layer."""

    def __init__(self, norm: Callable[[Tensor], Tensor]):
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(1, 4, 3, padding=1), norm, nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.first(x))).flatten(1))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "layer norm of a map": lambda: Normed(nn.LayerNorm((4, 4, 4))),
    "layer norm without weights": lambda: Normed(nn.LayerNorm(4, eps=0.1, elementwise_affine=False)),
    "layer norm without a bias": lambda: Normed(nn.LayerNorm((4, 4), bias=False)),
    "layer norm as a function": lambda: Normed(lambda x: F.layer_norm(x, (4,), eps=1e-3)),
    "group norm": lambda: Normed(nn.GroupNorm(2, 4)),
    "group norm as a function": lambda: Normed(lambda x: F.group_norm(x, 4)),
    "multi-head attention": lambda: Encoder(by_layer),
    "attention as a function": lambda: Encoder(by_function),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(2)
    made = MODELS[request.param]()
    for parameter in made.parameters():  # norms begin with weights of 1 and 0, which would hide an order
        nn.init.uniform_(parameter, -1, 1)
    return made.double().eval()


def test_the_same_values(model: nn.Module) -> None:
    images = torch.rand(3, 1, 4, 4, dtype=torch.float64)
    assert torch.allclose(trace(model)(images), model(images), rtol=1e-12, atol=1e-12)


def test_samples_lie_within_bounds_and_a_tiny_ball_is_decided(model: nn.Module) -> None:
    image = torch.rand(1, 1, 4, 4, dtype=torch.float64)
    lower, upper = lingraft.bounds(model, lingraft.Region(image[0] - 0.02, image[0] + 0.02)).outputs
    moved = 2 * torch.rand(200, 1, 4, 4, dtype=torch.float64) - 1
    outputs = model(image + 0.02 * torch.cat([moved, moved.sign()]))
    assert bool(((outputs >= lower - 1e-9) & (outputs <= upper + 1e-9)).all())
    label = model(image).argmax(1)
    (result,) = lingraft.verify(model, image, label, eps=1e-6, timeout=60, workers=0)
    assert result.verdict == "verified"


def test_intervals_of_training_hold_what_points_have(model: nn.Module) -> None:
    graph, image = graph_of(model), torch.rand(1, 1, 4, 4, dtype=torch.float64)
    points = image + 0.01 * (2 * torch.rand(100, 1, 4, 4, dtype=torch.float64) - 1)
    ((lower, upper),) = interval_bounds(graph, image - 0.01, image + 0.01).sites.values()
    ((low, high),) = interval_bounds(graph, points, points).sites.values()
    assert torch.allclose(low, high, atol=1e-9)
    assert bool(((low >= lower - 1e-9) & (high <= upper + 1e-9)).all())
    assert bool((upper - lower > 1e-4).all())


def test_grafted_and_exported(model: nn.Module, tmp_path: Any) -> None:
    model = model.float()
    (site,) = lingraft.sites(model, (1, 4, 4))
    mask = {site.name: torch.rand(site.shape) < 0.5}
    grafted = lingraft.graft(model, mask).eval()
    images = torch.rand(5, 1, 4, 4)
    lingraft.export_onnx(grafted, tmp_path / "net.onnx", input_shape=(1, 4, 4))
    assert torch.allclose(lingraft.load_onnx(tmp_path / "net.onnx")(images), grafted(images), atol=1e-4)


def by_positional_layer(net: Encoder, x: Tensor) -> Tensor:
    attended, weights = net.attention(x, x, x, None, False)
    return attended if weights is None else weights @ x


def with_weights(net: Encoder, x: Tensor) -> Tensor:
    attended, weights = net.attention(x, x, x)
    return attended if weights is None else attended + weights @ x


def test_weights_are_there_where_the_layer_gives_them() -> None:
    torch.manual_seed(0)
    images = torch.rand(3, 1, 4, 4)
    without = Encoder(by_positional_layer).eval()
    assert torch.allclose(trace(without)(images), without(images), atol=1e-5)
    ignored = Encoder(lambda net, x: net.attention(x, x, x)[0]).eval()
    assert torch.allclose(trace(ignored)(images), ignored(images), atol=1e-5)
    for used in (with_weights, lambda net, x: torch.sum(net.attention(x, x, x)[1], 1, keepdim=True)):
        with pytest.raises(LingraftError, match="uses the weights of multi-head attention"):
            trace(Encoder(used).eval())


def by_masked_layer(net: Encoder, x: Tensor) -> Tensor:
    attended, _ = net.attention(x, x, x, attn_mask=torch.zeros(4, 4))
    return attended


@pytest.mark.parametrize(
    ("attend", "settings", "message"),
    [
        (lambda net, x: F.scaled_dot_product_attention(x, x, x, is_causal=True), {}, "without a mask"),
        (by_masked_layer, {}, "without attn_mask"),
        (by_layer, {"dropout": 0.1}, "dropout=0"),
        (by_layer, {"batch_first": False}, "batch_first=True"),
        (by_layer, {"kdim": 3}, "features of one size"),
    ],
)
def test_what_is_not_known_of_attention_is_refused(attend: Any, settings: dict[str, Any], message: str) -> None:
    model = Encoder(attend)
    model.attention = nn.MultiheadAttention(4, 2, **{"batch_first": True, **settings})
    with pytest.raises(LingraftError, match=message):
        trace(model.eval())
