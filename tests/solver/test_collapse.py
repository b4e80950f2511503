"""The collapsed network is the network: taps and margins computed through P, Q and r are the true ones."""

from typing import Any

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = st.integers(0, 10**6)


def _assert_exact(model: Any, shape: tuple, seed: int, eps: float) -> int:
    region = nets.box(shape, seed, eps)
    generator = torch.Generator().manual_seed(seed)
    spec, offset = (torch.randn(*size, generator=generator).double() for size in [(4, 3), (4,)])
    network, found, collapsed = nets.collapsed(model, region, spec, offset)
    points = nets.points(region, seed, 24, model)
    x = network.inside(points).flatten(1).t()
    z, h = nets.tap_values(network, collapsed, points)
    assert collapsed.count == sum(int(found.unstable(network, i).sum()) for i in network.sites)
    for taps in collapsed.taps:
        here = taps.P.times(x) + taps.r[:, None]
        if taps.first:
            here = here + taps.Q.times(h[: taps.first])
        torch.testing.assert_close(here, z[taps.first : taps.last], rtol=1e-9, atol=1e-9)
    margins = collapsed.p.t() @ x + collapsed.q.t() @ h + collapsed.c[:, None]
    torch.testing.assert_close(margins.t(), model(points).detach() @ spec.t() + offset, rtol=1e-9, atol=1e-9)
    assert bool((z >= collapsed.lower[:, None] - 1e-9).all())
    assert bool((z <= collapsed.upper[:, None] + 1e-9).all())
    return collapsed.count


@pytest.mark.parametrize("operation", ["conv", "batch norm", "average", "maximum", "residual", "concat", "pad", "affine",
                                       "move", "identity"])  # fmt: skip
@settings(max_examples=6, deadline=None)
@given(
    seed=SEEDS,
    kind=st.sampled_from(["relu", "leaky", "sigmoid", "tanh"]),
    eps=st.floats(0.01, 0.6),
    graft=st.booleans(),
)
def test_every_operation(operation: str, seed: int, kind: str, eps: float, graft: bool) -> None:
    model, shape = nets.conv(seed, operation, kind)
    if graft:
        model = nets.grafted(model, shape, seed)
    _assert_exact(model, shape, seed, eps)


def test_vectors_and_many_taps() -> None:
    counts = []
    for seed in range(12):
        model, shape = nets.vector(seed, ("relu", "leaky", "tanh")[seed % 3], hidden=(9, 8, 7))
        counts.append(_assert_exact(model, shape, seed, 0.5))
    assert min(counts) > 5


def test_grafted_and_stable_neurons_cost_nothing() -> None:
    """A network grafted everywhere has no taps, and its margins are linear in the image."""
    for seed in range(4):
        model, shape = nets.conv(seed, "residual", "leaky")
        assert _assert_exact(nets.grafted(model, shape, seed, share=2.0), shape, seed, 1.0) == 0
        model, shape = nets.vector(seed)
        assert _assert_exact(model, shape, seed, 0.0) == 0


def test_sparse_and_dense_rows_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from lingraft.solver import matrix

    for threshold in (0.0, 2.0):
        monkeypatch.setattr(matrix, "SPARSE_BELOW", threshold)
        for seed in range(3):
            model, shape = nets.conv(seed, "conv")
            _assert_exact(model, shape, seed, 0.4)
