"""Grafted sites written with standard operations are found again; what only looks like one is left alone."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from lingraft.formats.onnx_import import load_onnx
from lingraft.model.grafted_activation import GraftedActivation
from lingraft.model.sites import grafted_activations, sites
from lingraft.model.surgery import graft

KEEP = np.array([[1, 0, 1, 0, 0]], np.float32)
SLOPE = np.array([[0, 0.5, 0, -2, 0]], np.float32)
SHIFT = np.array([[0, 1, 0, 0, 3]], np.float32)
CONSTANTS = {"k": KEEP, "s": SLOPE, "t": SHIFT}


def only_site(module: nn.Module) -> GraftedActivation:
    (site,) = grafted_activations(module).values()
    assert [type(child).__name__ for child in module.children()] == ["GraftedActivation"]
    return site


def assert_site(site: GraftedActivation, intercept: np.ndarray = SHIFT) -> None:
    slope, shift = site.line()
    assert np.array_equal(site.mask.numpy(), KEEP[0] == 0)
    assert np.array_equal(slope.detach().numpy(), SLOPE[0])
    np.testing.assert_allclose(shift.detach().numpy(), intercept[0], rtol=1e-6)


FORMS = {
    "output": [("Relu", "x", "r"), ("Mul", "r k", "p"), ("Mul", "x s", "l"), ("Add", "p l", "q"), ("Add", "q t", "y")],
    "output, nested": [
        ("Mul", "s x", "l"),
        ("Add", "t l", "q"),
        ("Relu", "x", "r"),
        ("Mul", "k r", "p"),
        ("Add", "q p", "y"),
    ],
    "output, subtracted": [
        ("Relu", "x", "r"),
        ("Mul", "r k", "p"),
        ("Mul", "x minus_s", "l"),
        ("Sub", "p l", "q"),
        ("Add", "q t", "y"),
    ],
    "input": [("Mul", "x k", "h"), ("Relu", "h", "r"), ("Mul", "x s", "l"), ("Add", "l r", "q"), ("Add", "q t", "y")],
    "input, nested": [
        ("Mul", "x k", "h"),
        ("Relu", "h", "r"),
        ("Mul", "x s", "l"),
        ("Add", "l t", "q"),
        ("Add", "r q", "y"),
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_both_forms_in_any_order(make_onnx, form):
    module = load_onnx(make_onnx(FORMS[form], [1, 5], {**CONSTANTS, "minus_s": -SLOPE}))
    assert_site(only_site(module))


@pytest.mark.parametrize(("operation", "base"), [("Sigmoid", "sigmoid"), ("Tanh", "tanh"), ("LeakyRelu", "leaky_relu")])
@pytest.mark.parametrize("form", ["output", "input"])
def test_other_activations(make_onnx, operation, base, form):
    nodes = [(operation if node[0] == "Relu" else node[0], *node[1:]) for node in FORMS[form]]
    site = only_site(load_onnx(make_onnx(nodes, [1, 5], CONSTANTS)))
    assert site.base.name == base
    # sigmoid(0) = 1/2 remains of a neuron whose input is multiplied by zero
    rest = 0.5 * (KEEP == 0) if (operation, form) == ("Sigmoid", "input") else 0
    assert_site(site, SHIFT + rest)


def test_constant_of_fewer_dimensions_covers_all_neurons(make_onnx):
    nodes = [("Relu", "x", "r"), ("Mul", "r k", "y")]
    site = only_site(load_onnx(make_onnx(nodes, [1, 2, 3, 3], {"k": np.array([[[1]], [[0]]], np.float32)})))
    assert site.mask[1].all()
    assert not site.mask[0].any()


def test_activation_times_zero_is_dead(make_onnx):
    site = only_site(load_onnx(make_onnx([("Relu", "x", "r"), ("Mul", "r k", "y")], [1, 5], {"k": KEEP})))
    assert np.array_equal(site.mask.numpy(), KEEP[0] == 0)
    assert not any(values.any() for values in site.line())


def test_scaled_activation_keeps_its_factors_and_loses_its_dead_neurons(make_onnx):
    module = load_onnx(make_onnx([("Relu", "x", "r"), ("Mul", "r k", "y")], [1, 5], {"k": 3 * KEEP}))
    assert np.array_equal(only_site(module).mask.numpy(), KEEP[0] == 0)
    assert torch.equal(module(torch.ones(1, 5)), torch.from_numpy(3 * KEEP))


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([("Relu", "x", "r"), ("Mul", "r one", "y")], id="nothing-masked"),
        pytest.param([("Relu", "x", "r"), ("Add", "r x", "y")], id="residual"),
        pytest.param([("Relu", "x", "r"), ("Mul", "x s", "l"), ("Add", "r l", "y")], id="line-everywhere"),
    ],
)
def test_what_is_no_grafted_site_stays(make_onnx, nodes):
    module = load_onnx(make_onnx(nodes, [1, 5], {**CONSTANTS, "one": np.ones((1, 5), np.float32)}))
    assert not grafted_activations(module)
    assert isinstance(module.relu1, nn.ReLU)


def test_sum_stops_where_it_would_touch_kept_neurons(make_onnx):
    """act(x)·keep + x: the dead neurons are found, the residual is not swallowed."""
    nodes = [("Relu", "x", "r"), ("Mul", "r k", "p"), ("Add", "p x", "y")]
    module = load_onnx(make_onnx(nodes, [1, 5], CONSTANTS))
    assert not any(values.any() for values in only_site(module).line())
    assert torch.equal(module(torch.ones(1, 5)), torch.from_numpy(KEEP + 1))


def test_activation_used_twice_is_no_site(make_onnx):
    nodes = [("Relu", "x", "r"), ("Mul", "r k", "p"), ("Add", "p r", "y")]
    assert not grafted_activations(load_onnx(make_onnx(nodes, [1, 5], CONSTANTS)))


def test_two_fully_connected_layers_become_one(make_onnx):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4, 3)).astype(np.float32)
    kept = np.array([1, 0, 0, 1], np.float32)
    weights = {"w1": rows * kept[:, None], "b1": kept, "w2": rows * (1 - kept)[:, None], "b2": 2 * (1 - kept)}
    nodes = [
        ("Gemm", "x w1 b1", "h", {"transB": 1}),
        ("Relu", "h", "r"),
        ("Gemm", "x w2 b2", "l", {"transB": 1}),
        ("Add", "r l", "y"),
    ]
    module = load_onnx(make_onnx(nodes, [1, 3], weights))
    (site,) = grafted_activations(module).values()
    assert [type(child).__name__ for child in module.children()] == ["Linear", "GraftedActivation"]
    assert site.mask.tolist() == [False, True, True, False]
    assert torch.equal(module.linear1.weight, torch.from_numpy(rows))


def test_two_layers_that_overlap_stay_two(make_onnx):
    rows = np.ones((4, 3), np.float32)
    nodes = [
        ("Gemm", "x w", "h", {"transB": 1}),
        ("Relu", "h", "r"),
        ("Gemm", "x w", "l", {"transB": 1}),
        ("Add", "r l", "y"),
    ]
    module = load_onnx(make_onnx(nodes, [1, 3], {"w": rows}))
    assert not grafted_activations(module)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000),
    ratio=st.floats(0, 1),
    form=st.sampled_from(["output", "input"]),
    activation=st.sampled_from([nn.ReLU, nn.LeakyReLU, nn.Sigmoid, nn.Tanh]),
)
def test_any_grafted_convolution_comes_back_exactly(round_trip, seed, ratio, form, activation):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), activation(), nn.Flatten(), nn.Linear(27, 2))
    (site,) = sites(model, (1, 5, 5))
    grafted = graft(model, {site.name: torch.rand(site.shape) < ratio})
    (before,) = grafted_activations(grafted).values()
    with torch.no_grad():
        before.slope.copy_(torch.randn(site.shape))
        before.intercept.copy_(torch.randn(site.shape))
    back = round_trip(grafted, (1, 5, 5), form=form)
    if 0 < before.grafted < site.neurons:
        (after,) = grafted_activations(back).values()
        assert after.base.name == before.base.name
        assert after.base.arguments == pytest.approx(dict(before.base.arguments))
        assert torch.equal(after.mask, before.mask)
        for mine, theirs in zip(after.line(), before.line(), strict=True):
            assert torch.equal(mine, theirs)


def test_public_grafted_network(problems_folder):
    """Half of the 16,634 neurons of this network are grafted, and none of its sites is written as one."""
    module = load_onnx(problems_folder / "cnn_b_graft50" / "model.onnx")
    found = grafted_activations(module)
    assert [site.neurons for site in found.values()] == [(32, 16, 16), (128, 8, 8), (250,)]
    assert sum(site.grafted for site in found.values()) == 16_634 // 2
    assert not any(isinstance(child, nn.ReLU) for child in module.modules())
