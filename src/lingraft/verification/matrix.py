"""A matrix that multiplies many columns at once, dense or sparse, whichever is cheaper."""

from dataclasses import dataclass

import torch
from torch import Tensor

#: Sparse products run at about an eighth of a dense product's rate, so below this density they win.
SPARSE_BELOW = 0.1


@dataclass
class Matrix:
    """`forward` (m, n) and `backward`, its transpose, both stored for products with (n, B) and (m, B)."""

    forward: Tensor
    backward: Tensor

    def times(self, columns: Tensor) -> Tensor:
        """M · columns."""
        return self.forward @ columns

    def transposed_times(self, columns: Tensor) -> Tensor:
        """Mᵀ · columns."""
        return self.backward @ columns

    def to(self, dtype: torch.dtype) -> "Matrix":
        """The same matrix in another precision."""
        return Matrix(self.forward.to(dtype), self.backward.to(dtype))

    def dense(self) -> Tensor:
        """The matrix as an ordinary tensor (m, n)."""
        return self.forward.to_dense() if self.forward.layout == torch.sparse_csr else self.forward

    @classmethod
    def of(cls, rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> "Matrix":
        """From entries at (rows, columns); entries at the same place add up."""
        place = torch.stack([rows, columns])
        if len(values) >= SPARSE_BELOW * shape[0] * shape[1]:
            return cls.of_dense(torch.sparse_coo_tensor(place, values, shape).to_dense())
        matrix = torch.sparse_coo_tensor(place, values, shape).coalesce()
        return cls(matrix.to_sparse_csr(), matrix.t().coalesce().to_sparse_csr())

    @classmethod
    def of_dense(cls, matrix: Tensor) -> "Matrix":
        """From an ordinary tensor."""
        return cls(matrix, matrix.t())
