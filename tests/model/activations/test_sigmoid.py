"""Lines lie below and above sigmoid and tanh on the whole interval, and are as good as they can be where that is known."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lingraft.model.activations import KNOWN
from lingraft.model.activations.curve import SLACK

SMOOTH = {"sigmoid": lambda z: 0.5 * (1 + np.tanh(z.astype(np.longdouble) / 2)), "tanh": lambda z: np.tanh(z.astype(np.longdouble))}  # fmt: skip


def _intervals(kind: str, seed: int, count: int) -> tuple[Tensor, Tensor]:
    """Random intervals: everyday, tiny, of one point, one-sided, huge, and with ends where tangents switch."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randn(2, count, generator=generator).double() * 10 ** (torch.rand(count, generator=generator) * 4 - 2)
    lower, upper = ends.sort(0).values
    group = torch.arange(count) % 8
    tiny = 10 ** (-12 * torch.rand(count, generator=generator).double() - 1)
    upper = torch.where(group == 1, lower + tiny, upper)
    upper = torch.where(group == 2, lower, upper)
    lower = torch.where(group == 3, torch.full_like(lower, -50.0), lower)
    upper = torch.where(group == 3, torch.full_like(lower, 50.0), upper)
    lower = torch.where(group == 4, lower.abs(), lower)
    upper = torch.where(group == 4, torch.maximum(lower, upper), upper)
    upper = torch.where(group == 5, -upper.abs(), upper)
    lower = torch.where(group == 5, torch.minimum(lower, upper), lower)
    lower = torch.where(group == 6, -tiny, lower)
    upper = torch.where(group == 6, torch.maximum(tiny, upper), upper)
    return lower, torch.maximum(lower, upper)


@pytest.mark.parametrize("kind", ["sigmoid", "tanh"])
def test_smooth_lines_hold_on_dense_grids(kind: str) -> None:
    """Checked in extended precision against the function itself, for thousands of intervals."""
    lower, upper = _intervals(kind, 1, 6000)
    ls, li, us, ui = (t.numpy().astype(np.longdouble)[:, None] for t in KNOWN[kind].lines(lower, upper))
    share = np.linspace(0, 1, 201)
    z = lower.numpy()[:, None] + (upper - lower).numpy()[:, None] * share
    z = np.clip(z, lower.numpy()[:, None], upper.numpy()[:, None])
    value = SMOOTH[kind](z)
    assert (ls * z + li - value).max() <= 0
    assert (value - us * z - ui).max() <= 0


@pytest.mark.parametrize("kind", ["sigmoid", "tanh"])
def test_smooth_lines_are_tight(kind: str) -> None:
    """Each line touches the function somewhere, and short intervals leave little between the lines."""
    lower, upper = _intervals(kind, 2, 2000)
    ls, li, us, ui = (t.numpy().astype(np.longdouble)[:, None] for t in KNOWN[kind].lines(lower, upper))
    share = np.concatenate([np.linspace(0, 1, 801), np.geomspace(1e-6, 1, 200), 1 - np.geomspace(1e-6, 1, 200)])
    z = lower.numpy()[:, None] + (upper - lower).numpy()[:, None] * share
    value = SMOOTH[kind](z)
    assert (value - ls * z - li).min(1).max() < 2e-3
    assert (us * z + ui - value).min(1).max() < 2e-3
    width = (upper - lower).numpy()
    gap = (us * z + ui - ls * z - li)[:, :801].mean(1)
    assert (gap <= np.minimum(width**2, 2.02) + 4 * SLACK).all()


@settings(max_examples=300, deadline=None)
@given(st.floats(-80, 80), st.floats(0, 100), st.sampled_from(["sigmoid", "tanh"]))
def test_any_smooth_interval(low: float, width: float, kind: str) -> None:
    lower, upper = torch.tensor([low], dtype=torch.float64), torch.tensor([low + width], dtype=torch.float64)
    ls, li, us, ui = (float(t) for t in KNOWN[kind].lines(lower, upper))
    assert all(math.isfinite(t) for t in (ls, li, us, ui))
    z = np.linspace(low, low + width, 501)
    value = SMOOTH[kind](z)
    assert (np.longdouble(ls) * z + li <= value).all()
    assert (np.longdouble(us) * z + ui >= value).all()


@pytest.mark.parametrize("kind", ["sigmoid", "tanh"])
def test_smooth_lines_on_intervals_of_any_size(kind: str) -> None:
    """Far out the slope is small, and known only to a few digits."""
    sizes = torch.logspace(0, 12, 200, dtype=torch.float64)
    lower, upper = (torch.cat(ends) for ends in ((-sizes, -sizes, -torch.ones(200)), (sizes, torch.ones(200), sizes)))
    ls, li, us, ui = (t.numpy().astype(np.longdouble)[:, None] for t in KNOWN[kind].lines(lower, upper))
    near_zero = np.concatenate([-np.geomspace(1e-3, 1e3, 200), np.geomspace(1e-3, 1e3, 200)])
    z = np.clip(near_zero, lower.numpy()[:, None], upper.numpy()[:, None])
    z = np.concatenate([z, lower.numpy()[:, None], upper.numpy()[:, None]], axis=1)
    value = SMOOTH[kind](z)
    assert (ls * z + li - value).max() <= 0
    assert (value - us * z - ui).max() <= 0
