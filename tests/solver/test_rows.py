"""Rows on windows equal the same rows on whole maps."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lingraft.solver.rows import Rows, select

SEEDS = st.integers(0, 10**6)


def _windows(generator: torch.Generator, shape: tuple[int, int, int], rows: int, size: tuple[int, int]) -> Rows:
    """Random windows, some reaching over the edge, with zeros outside the map as promised."""
    height, width, channels = shape
    h, w = size
    y = torch.randint(-h + 1, height, (rows, 1), generator=generator)
    x = torch.randint(-w + 1, width, (rows, 1), generator=generator)
    made = Rows(torch.randn(rows, h, w, channels, generator=generator).double(), torch.cat([y, x], 1))
    _, inside = made.places(height, width)
    return Rows(made.coefficients * inside.view(rows, h, w, 1), made.origin)


def _dense(rows: Rows, shape: tuple[int, int, int]) -> Tensor:
    """Coefficients placed one by one."""
    assert rows.origin is not None
    full = torch.zeros(len(rows), *shape, dtype=torch.float64)
    for r, (y0, x0) in enumerate(rows.origin.tolist()):
        for i in range(rows.coefficients.shape[1]):
            for j in range(rows.coefficients.shape[2]):
                if 0 <= y0 + i < shape[0] and 0 <= x0 + j < shape[1]:
                    full[r, y0 + i, x0 + j] = rows.coefficients[r, i, j]
    return full


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.integers(1, 6))
def test_whole_and_view(seed: int, channels: int, height: int, width: int, h: int, w: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (height, width, channels)
    rows = _windows(generator, shape, 5, (h, w))
    dense = _dense(rows, shape)
    assert torch.equal(rows.whole(shape).coefficients, dense)
    values = torch.randn(shape, generator=generator).double()
    seen = (rows.coefficients * rows.view_of(values)).flatten(1).sum(1)
    torch.testing.assert_close(seen, (dense * values).flatten(1).sum(1))
    twice = rows.and_negated()
    assert torch.equal(twice.whole(shape).coefficients, torch.cat([dense, -dense]))


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(-2, 2), st.integers(-2, 2), st.booleans())
def test_sum_of_windows(seed: int, dy: int, dx: int, same_shift: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (5, 6, 2)
    first = _windows(generator, shape, 4, (2, 3))
    assert first.origin is not None
    other = _windows(generator, shape, 4, (3, 2))
    if same_shift:
        other = Rows(other.coefficients, first.origin + torch.tensor([dy, dx]))
        _, inside = other.places(*shape[:2])
        other = Rows(other.coefficients * inside.view(4, 3, 2, 1), other.origin)
    total = first.plus(other, shape)
    assert (total.origin is not None) or not same_shift
    torch.testing.assert_close(total.whole(shape).coefficients, _dense(first, shape) + _dense(other, shape))
    mixed = first.plus(other.whole(shape), shape)
    torch.testing.assert_close(mixed.coefficients, _dense(first, shape) + _dense(other, shape))


def test_select_is_the_neuron_itself() -> None:
    for shape in [(3, 4, 2), (7,), (3, 5)]:
        size = int(torch.tensor(shape).prod())
        values = torch.randn(shape).double()
        indices = torch.randperm(size)
        rows = select(indices, shape, torch.float64).whole(shape).coefficients
        assert torch.equal((rows * values).flatten(1).sum(1), values.flatten()[indices])
