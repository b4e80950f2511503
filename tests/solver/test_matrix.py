"""Matrices are the same whether they are stored densely or sparsely."""

import pytest
import torch
from torch import Tensor

from lingraft.solver.matrix import FEW_COLUMNS, SPARSE_BELOW, Matrix, Stack


def _entries(count: int, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random entries, some at the same place, and the matrix they are."""
    generator = torch.Generator().manual_seed(count)
    row, column = (torch.randint(size, (count,), generator=generator) for size in shape)
    value = torch.randn(count, generator=generator, dtype=torch.float64)
    expected = torch.zeros(shape, dtype=torch.float64)
    for r, c, v in zip(row.tolist(), column.tolist(), value.tolist(), strict=True):
        expected[r, c] += v
    return row, column, value, expected


@pytest.mark.parametrize("count", [0, 1, 30, 600])
def test_products(count: int) -> None:
    shape = (20, 30)
    row, column, value, expected = _entries(count, shape)
    matrix = Matrix.of(row, column, value, shape)
    assert matrix.sparse == (count < SPARSE_BELOW * 600)
    columns = torch.randn(30, 4, dtype=torch.float64)
    close = lambda a, b: torch.testing.assert_close(a, b, rtol=0, atol=1e-12)  # noqa: E731
    close(matrix.dense(), expected)
    close(matrix.times(columns), expected @ columns)
    close(matrix.transposed_times(expected), expected.t() @ expected)
    scaled = matrix.scaled(columns[:, 0])
    close(scaled.dense(), expected * columns[:, 0])
    close(scaled.backward.to_dense(), (expected * columns[:, 0]).t())
    assert matrix.to(torch.float32).times(columns.float()).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [0, 1, 2, *(count + more for count in FEW_COLUMNS.values() for more in (0, 1))])
def test_few_columns_are_multiplied_as_many_are(width: int, dtype: torch.dtype) -> None:
    whole = torch.randn(40, 30, dtype=torch.float64)
    matrix = Matrix.of_dense(whole)
    stack = Stack([(5, matrix)], 50, 30).to(dtype)
    below = torch.zeros(50, 30, dtype=torch.float64)
    below[5:45] = whole
    columns, rows = torch.randn(30, width, dtype=dtype), torch.randn(50, width, dtype=dtype)
    close = lambda a, b: torch.testing.assert_close(a.double(), b, rtol=0, atol=1e-4)  # noqa: E731
    close(matrix.to(dtype).times(columns), whole @ columns.double())
    close(matrix.to(dtype).transposed_times(rows[:40]), whole.t() @ rows[:40].double())
    close(stack.times(columns), below @ columns.double())
    close(stack.transposed_times(rows), below.t() @ rows.double())


def test_matrices_below_each_other() -> None:
    parts, expected = [], torch.zeros(50, 30, dtype=torch.float64)
    for first, count in ((0, 9), (25, 20)):
        *entries, dense = _entries(count, (20, 30))
        parts.append((first, Matrix.of(entries[0], entries[1], entries[2], (20, 30))))
        expected[first : first + 20] = dense
    stacked = Matrix.stacked(parts, 50)
    torch.testing.assert_close(stacked.dense(), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(stacked.backward.to_dense(), expected.t(), rtol=0, atol=1e-12)


def test_sparse_and_dense_ones_below_each_other() -> None:
    parts, expected = [], torch.zeros(70, 30, dtype=torch.float64)
    for first, count in ((0, 9), (25, 600), (46, 20)):
        *entries, dense = _entries(count, (20, 30))
        parts.append((first, Matrix.of(entries[0], entries[1], entries[2], (20, 30))))
        expected[first : first + 20] = dense
    for some in (parts, parts[:1], parts[1:2], []):
        there = torch.zeros(70, 1, dtype=torch.float64)
        for first, _ in some:
            there[first : first + 20] = 1
        stack, columns = Stack(some, 70, 30), torch.randn(30, 4, dtype=torch.float64)
        torch.testing.assert_close(stack.times(columns), there * expected @ columns, rtol=0, atol=1e-12)
        back = stack.transposed_times(expected)
        torch.testing.assert_close(back, (there * expected).t() @ expected, rtol=0, atol=1e-12)
        assert stack.to(torch.float32).times(columns.float()).dtype == torch.float32
