"""Bounds over many boxes at once: they hold for real inputs, and are those of single boxes."""

from fractions import Fraction

import numpy as np
import pytest
import random_networks as nets
import torch
from checked_layers import layered
from exact_rational import Exact
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.checker import box_bounds
from lingraft.checker.bounds import Bounds
from lingraft.checker.box_bounds import BoxBounds, least, price_of_a_box
from lingraft.checker.budget import Budget
from lingraft.checker.format import Rejected
from lingraft.checker.network import inner
from lingraft.checker.rows import Tally

SPEC, OFFSET = np.array([[1.0, -1.0, 0.0], [0.5, 0.0, -2.0]]), np.array([0.3, -0.2])


def _parts(shape: tuple[int, ...], seed: int, count: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Random boxes, one of them a point, in the order of the file."""
    ends = np.random.default_rng(seed).uniform(-0.3, 1.0, (2, count, *shape))
    ends[:, -1] = ends[0, -1]
    return ends.min(0), ends.max(0)


def _inner(boxes: np.ndarray) -> np.ndarray:
    return np.stack([inner(box) for box in boxes])


@pytest.mark.parametrize(
    "operation", ["conv", "batch norm", "average", "maximum", "residual", "concat", "pad", "affine", None]
)
def test_samples_lie_inside_and_single_boxes_have_the_same_bounds(checked, evaluate, operation):  # fmt: skip
    if operation is None:
        model, shape = nets.vector(7, "leaky")
    else:
        model, shape = nets.conv(3, operation, "relu", small=True)
    network = checked(model.float(), shape)
    low, high = _parts(shape, 1)
    found = BoxBounds(network, _inner(low), _inner(high), Budget())
    value, p = found.functions(SPEC, OFFSET)
    radius = found.radius.reshape(len(low), 1, -1)
    below = least(value, p, radius)
    best = np.maximum(below, found.intervals(SPEC, OFFSET))
    rng = np.random.default_rng(2)
    for b in range(len(low)):
        single = Bounds(network, inner(low[b]).copy(), inner(high[b]).copy())
        for ours, theirs in ((found.lower, single.lower), (found.upper, single.upper)):
            for one, other in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(one[b], other, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(best[b], single.margins(SPEC, OFFSET), rtol=1e-9, atol=1e-9)
        center = found.center[b].reshape(-1)
        for share in [*rng.random((10, *shape)), *rng.integers(0, 2, (10, *shape))]:
            x = low[b] + share * (high[b] - low[b])
            values = evaluate(network, x)
            for i, real in enumerate(values):
                assert (real >= found.lower[i][b] - 1e-9).all()
                assert (real <= found.upper[i][b] + 1e-9).all()
            margins = SPEC @ values[-1] + OFFSET
            assert (margins >= best[b] - 1e-9).all()
            assert (margins >= value[b] + p[b] @ (inner(x).reshape(-1) - center) - 1e-9).all()


def too_high(seed: int, scale: float) -> bool:
    """Whether a bound of a box, which may be a point, is above the exact minimum, where large numbers cancel."""
    rng = np.random.default_rng(seed)
    layers = [
        (rng.normal(0, s, (m, n)).astype(np.float32), rng.normal(0, s, m).astype(np.float32))
        for n, m, s in ((1, 4, scale), (4, 4, 1.0), (4, 2, 1 / scale))
    ]
    network, exact = layered(layers), Exact(layers)
    ends = np.sort(rng.uniform(-1, 1, (3, 2)), axis=1)
    ends[-1] = ends[-1, 0]
    spec, offset = np.eye(2), np.array([0.1, -1e9])
    found = BoxBounds(network, ends[:, :1], ends[:, 1:], Budget())
    value, p = found.functions(spec, offset)
    bounds = np.maximum(least(value, p, found.radius[:, None]), found.intervals(spec, offset))
    return any(
        Fraction(float(bound)) > minimum + Fraction(float(shift))
        for b, (low, high) in enumerate(ends)
        for minimum, shift, bound in zip(exact.minima(low, high), offset, bounds[b], strict=True)
    )


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1.0, 1e-6, 1e8]))
def test_nothing_is_rounded_the_wrong_way(seed, scale):
    assert not too_high(seed, scale)


def test_rounding_that_costs_nothing_is_noticed(monkeypatch):
    monkeypatch.setattr(box_bounds, "gamma", lambda _: 0.0)
    monkeypatch.setattr(box_bounds, "down", lambda x: x)
    monkeypatch.setattr(Tally, "add", lambda tally, constant, _: vars(tally).update(constant=tally.constant + constant))
    assert any(too_high(seed, 1.0) for seed in range(20))


def test_work_is_paid_for_before_it_is_done(checked):
    torch.manual_seed(0)
    network = checked(nets.vector(1)[0].float(), (3,))
    low, high = _parts((3,), 0)
    enough = Budget(1e9)
    BoxBounds(network, low, high, enough)
    assert enough.spent > 0
    assert price_of_a_box(network) > 0
    with pytest.raises(Rejected, match="work"):
        BoxBounds(network, low, high, Budget(enough.spent / 2))
    with pytest.raises(Rejected, match="memory"):
        BoxBounds(network, low, high, Budget(memory=100))
