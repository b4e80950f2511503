"""A matrix that multiplies many columns at once, dense or sparse, whichever is cheaper."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.sparse import coo_array, csr_array
from torch import Tensor

#: Sparse products run at about an eighth of a dense product's rate, so below this density they win.
SPARSE_BELOW = 0.13

#: So few columns are multiplied as rows from the left, by precision: on a CPU two to four times as fast.
FEW_COLUMNS = {torch.float32: 20, torch.float64: 64}


@dataclass
class Matrix:
    """`forward` (m, n) and `backward`, its transpose, both stored for products with (n, B) and (m, B)."""

    forward: Tensor
    backward: Tensor

    @property
    def sparse(self) -> bool:
        """Whether the entries are stored sparsely."""
        return self.forward.layout == torch.sparse_csr

    def times(self, columns: Tensor) -> Tensor:
        """M · columns."""
        return _times(self.forward, columns)

    def transposed_times(self, columns: Tensor) -> Tensor:
        """Mᵀ · columns."""
        return _times(self.backward, columns)

    def to(self, dtype: torch.dtype) -> "Matrix":
        """The same matrix in another precision."""
        return Matrix(self.forward.to(dtype), self.backward.to(dtype))

    def dense(self) -> Tensor:
        """The matrix as an ordinary tensor (m, n)."""
        return self.forward.to_dense() if self.sparse else self.forward

    def scaled(self, columns: Tensor) -> "Matrix":
        """M · diag(columns)."""
        if not self.sparse:
            return Matrix.of_dense(self.forward * columns)
        each = columns.repeat_interleave(self.backward.crow_indices().diff())
        ways = (self.forward, columns[self.forward.col_indices()]), (self.backward, each)
        return Matrix(*(_csr(m.crow_indices(), m.col_indices(), m.values() * by, m.shape) for m, by in ways))

    def entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row, column and value of the stored entries of a sparse matrix."""
        per_row = self.forward.crow_indices().diff()
        row = torch.arange(len(per_row), device=per_row.device).repeat_interleave(per_row)
        return row, self.forward.col_indices().long(), self.forward.values()

    @classmethod
    def stacked(cls, parts: "list[tuple[int, Matrix]]", rows: int) -> "Matrix":
        """Sparse matrices below each other, each starting at its given row of `rows`; the rest is zero."""
        entries = [(first + row, column, value) for first, m in parts for row, column, value in [m.entries()]]
        row, column, value = (torch.cat(tensors) for tensors in zip(*entries, strict=True))
        return cls._of_entries(row, column, value, (rows, parts[0][1].forward.shape[1]))

    @classmethod
    def of(cls, row: Tensor, column: Tensor, value: Tensor, shape: tuple[int, int]) -> "Matrix":
        """From entries at (row, column); entries at the same place add up."""
        if len(value) >= SPARSE_BELOW * shape[0] * shape[1]:
            whole = torch.zeros(shape, dtype=value.dtype, device=value.device)
            whole.view(-1).index_add_(0, row * shape[1] + column, value)
            return cls.of_dense(whole)
        return cls._of_entries(row, column, value, shape)

    @classmethod
    def _of_entries(cls, row: Tensor, column: Tensor, value: Tensor, shape: tuple[int, int]) -> "Matrix":
        if value.device.type == "cpu":  # by counting, where torch would sort
            whole = coo_array((value.numpy(), (row.int().numpy(), column.int().numpy())), shape=shape).tocsr()
            return cls(_of_scipy(whole), _of_scipy(whole.T.tocsr()))
        matrix = torch.sparse_coo_tensor(torch.stack([row, column]), value, shape, check_invariants=False).coalesce()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return cls(matrix.to_sparse_csr(), matrix.t().coalesce().to_sparse_csr())

    @classmethod
    def of_dense(cls, matrix: Tensor) -> "Matrix":
        """From an ordinary tensor."""
        return cls(matrix.contiguous(), matrix.t().contiguous())


class Stack:
    """Matrices below each other, each starting at its given row of `rows`: sparse ones are one product together."""

    def __init__(self, parts: "list[tuple[int, Matrix]]", rows: int, columns: int):
        self.shape = (rows, columns)
        sparse = [(first, part) for first, part in parts if part.sparse]
        self.sparse = Matrix.stacked(sparse, rows) if sparse else None
        self.dense = [(first, first + len(part.forward), part) for first, part in parts if not part.sparse]

    def to(self, dtype: torch.dtype) -> "Stack":
        """The same in another precision."""
        result = Stack([], *self.shape)
        result.sparse = None if self.sparse is None else self.sparse.to(dtype)
        result.dense = [(first, last, part.to(dtype)) for first, last, part in self.dense]
        return result

    def with_rows(self, parts: "list[tuple[int, Matrix]]", rows: int) -> "Stack":
        """The same of at least as many rows, plus dense matrices, each from its given row on."""
        result = Stack([], rows, self.shape[1])
        if self.sparse is not None:
            result.sparse = Matrix.stacked([(0, self.sparse)], rows)
        result.dense = [*self.dense, *((first, first + len(part.forward), part) for first, part in parts)]
        return result

    def times(self, columns: Tensor) -> Tensor:
        """M · columns."""
        if self.sparse is None:
            result = columns.new_zeros(self.shape[0], columns.shape[1])
        else:
            result = self.sparse.times(columns)
        for first, last, part in self.dense:
            _add_times(result[first:last], part.forward, columns)
        return result

    def transposed_times(self, columns: Tensor) -> Tensor:
        """Mᵀ · columns."""
        if self.sparse is None:
            result = columns.new_zeros(self.shape[1], columns.shape[1])
        else:
            result = self.sparse.transposed_times(columns)
        for first, last, part in self.dense:
            _add_times(result, part.backward, columns[first:last])
        return result


def _few(matrix: Tensor, columns: Tensor) -> bool:
    """Whether a product of a dense matrix is faster from the other side."""
    return matrix.layout == torch.strided and 1 < columns.shape[1] <= FEW_COLUMNS.get(columns.dtype, 0)


def _times(matrix: Tensor, columns: Tensor) -> Tensor:
    """The product."""
    return (columns.t().contiguous() @ matrix.t()).t() if _few(matrix, columns) else matrix @ columns


def _add_times(result: Tensor, matrix: Tensor, columns: Tensor) -> None:
    """Add the product of a dense matrix to `result`, in place."""
    if _few(matrix, columns):
        result += _times(matrix, columns)
    else:
        result.addmm_(matrix, columns)


def _csr(start: Tensor, column: Tensor, value: Tensor, shape: Sequence[int]) -> Tensor:
    """A sparse tensor of the starts of its rows, and the columns and values of its entries."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(start, column, value, tuple(shape), check_invariants=False)


def _of_scipy(matrix: csr_array) -> Tensor:
    start, column, value = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    return _csr(start, column, value, matrix.shape)
