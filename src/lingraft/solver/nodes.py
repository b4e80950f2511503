"""The nodes of a verifiable network: what each computes, its interval form, and how rows pass back through it.

Every operation that is linear becomes one of five nodes (Convolution, Dense, Scale, Gather, Sum); everything
nonlinear becomes a Site. All constants are float64, so that bounds at the root are computed in float64.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lingraft.errors import LingraftError
from lingraft.model.activations import Activation, activation
from lingraft.solver.rows import Rows, select

Shape = tuple[int, ...]
Back = tuple[list[Rows], Tensor]


@dataclass
class Node:
    """`inputs` are positions in the network's list of nodes; `shape` is without the batch, channels last."""

    name: str
    shape: Shape
    inputs: list[int]

    @property
    def size(self) -> int:
        """Number of values."""
        return int(torch.tensor(self.shape).prod())

    def forward(self, *values: Tensor) -> Tensor:
        """Values (N, *shape) of the node from those of its inputs."""
        raise AssertionError(self.name)

    def spread(self, *radii: Tensor) -> Tensor:
        """Radius (N, *shape) of the node's interval from those of its inputs; linear nodes only."""
        raise AssertionError(self.name)

    def back(self, rows: Rows) -> Back:
        """Rows over each input, and the constant (R,) that belongs to them; linear nodes only."""
        raise AssertionError(self.name)

    def neurons(self, indices: Tensor) -> Back:
        """`back` of the rows that are single values of this node, given by their flat indices."""
        return self.back(select(indices, self.shape, torch.float64))


@dataclass
class Input(Node):
    """The image. The last `known` values of it are numbers but for rounding, in every region."""

    known: int = field(default=0, metadata={"digest": False})


@dataclass
class Convolution(Node):
    """`matrix` (out, kh·kw·in) and `bias` (out,) on a map of shape `source`; padding is (top, left, bottom, right)."""

    source: Shape
    matrix: Tensor
    bias: Tensor
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]

    def _convolve(self, x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
        top, left, bottom, right = self.padding
        x = F.pad(x.permute(0, 3, 1, 2), (left, right, top, bottom))
        weight = matrix.view(-1, *self.kernel, self.source[2]).permute(0, 3, 1, 2).to(x.dtype)
        bias = None if bias is None else bias.to(x.dtype)
        return F.conv2d(x, weight, bias, self.stride, 0, self.dilation).permute(0, 2, 3, 1)

    def forward(self, *values: Tensor) -> Tensor:
        return self._convolve(values[0], self.matrix, self.bias)

    def spread(self, *radii: Tensor) -> Tensor:
        return self._convolve(radii[0], self.matrix.abs(), None)

    def back(self, rows: Rows) -> Back:
        a = rows.coefficients
        constant = a.flatten(1, 2).sum(1) @ self.bias.to(a.dtype)
        count, h, w, _ = a.shape
        (kh, kw), (sy, sx), (dy, dx) = self.kernel, self.stride, self.dilation
        channels = self.source[2]
        products = (a.reshape(-1, a.shape[3]) @ self.matrix.to(a.dtype)).view(count, h, w, kh, kw, channels)
        height, width = (h - 1) * sy + dy * (kh - 1) + 1, (w - 1) * sx + dx * (kw - 1) + 1
        if h == w == 1 and dy == dx == 1:
            out = products.view(count, kh, kw, channels)
        else:
            out = a.new_zeros(count, height, width, channels)
            for i in range(kh):
                for j in range(kw):
                    y, x = i * dy, j * dx
                    out[:, y : y + (h - 1) * sy + 1 : sy, x : x + (w - 1) * sx + 1 : sx] += products[:, :, :, i, j]
        top, left = self.padding[:2]
        if rows.origin is None:
            return [Rows(_crop(out, top, left, self.source))], constant
        origin = rows.origin * rows.origin.new_tensor([sy, sx]) - rows.origin.new_tensor([top, left])
        return [self._cleared(Rows(out, origin))], constant

    def neurons(self, indices: Tensor) -> Back:
        channels = self.shape[2]
        position, channel = indices // channels, indices % channels
        corner = torch.stack([position // self.shape[1], position % self.shape[1]], dim=1)
        origin = corner * corner.new_tensor(self.stride) - corner.new_tensor(self.padding[:2])
        (kh, kw), (dy, dx) = self.kernel, self.dilation
        out = self.matrix.new_zeros(len(indices), dy * (kh - 1) + 1, dx * (kw - 1) + 1, self.source[2])
        out[:, ::dy, ::dx] = self.matrix[channel].view(-1, kh, kw, self.source[2])
        return [self._cleared(Rows(out, origin))], self.bias[channel]

    def _cleared(self, rows: Rows) -> Rows:
        """Whole maps where windows would not be smaller; otherwise windows without coefficients in the padding."""
        height, width = rows.coefficients.shape[1:3]
        if height * width >= self.source[0] * self.source[1]:
            return rows.whole(self.source)
        _clear_outside(rows, self.source)
        return rows


def _crop(out: Tensor, top: int, left: int, source: Shape) -> Tensor:
    """Cut the padding off whole maps, and add the far rows and columns that no kernel position reached."""
    height, width, _ = source
    out = out[:, top : top + height, left : left + width]
    return F.pad(out, (0, 0, 0, width - out.shape[2], 0, height - out.shape[1]))


def _clear_outside(rows: Rows, shape: Shape) -> None:
    """Zero the coefficients that lie in the padding, in place."""
    assert rows.origin is not None
    height, width, _ = shape
    _, h, w, _ = rows.coefficients.shape
    limit = rows.origin.new_tensor([height - h, width - w])
    over = ((rows.origin < 0) | (rows.origin > limit)).any(1).nonzero().flatten()
    if len(over):
        part = Rows(rows.coefficients[over], rows.origin[over])
        _, inside = part.places(height, width)
        rows.coefficients[over] = part.coefficients * inside.view(-1, h, w, 1)


@dataclass
class Dense(Node):
    """`weight` (out, in) and `bias` (out,) on a vector."""

    weight: Tensor
    bias: Tensor

    def forward(self, *values: Tensor) -> Tensor:
        return F.linear(values[0], self.weight.to(values[0].dtype), self.bias.to(values[0].dtype))

    def spread(self, *radii: Tensor) -> Tensor:
        return F.linear(radii[0], self.weight.abs().to(radii[0].dtype))

    def back(self, rows: Rows) -> Back:
        a = rows.coefficients
        return [Rows(a @ self.weight.to(a.dtype))], a @ self.bias.to(a.dtype)

    def neurons(self, indices: Tensor) -> Back:
        return [Rows(self.weight[indices])], self.bias[indices]


@dataclass
class Scale(Node):
    """weight · x + bias, neuron by neuron (batch norm, normalization, multiplication by a constant)."""

    weight: Tensor
    bias: Tensor

    def forward(self, *values: Tensor) -> Tensor:
        return values[0] * self.weight.to(values[0].dtype) + self.bias.to(values[0].dtype)

    def spread(self, *radii: Tensor) -> Tensor:
        return radii[0] * self.weight.abs().to(radii[0].dtype)

    def back(self, rows: Rows) -> Back:
        a = rows.coefficients
        bias = self.bias.to(a.dtype)
        if rows.origin is None:
            constant = a.flatten(1) @ bias.flatten()
        else:
            constant = (a * rows.view_of(bias)).flatten(1).sum(1)
        return [Rows(a * rows.view_of(self.weight.to(a.dtype)), rows.origin)], constant


@dataclass
class Gather(Node):
    """Values moved to other places: reshape, transpose, slice, pad. `index` (size,) into the flat input, −1 for 0."""

    source: Shape
    index: Tensor

    @cached_property
    def _first(self) -> int | None:
        """Where the values begin that are taken as they stand, one after the other; None if they are not."""
        if not len(self.index) or int(self.index[0]) < 0 or bool((self.index.diff() != 1).any()):
            return None
        return int(self.index[0])

    @cached_property
    def _used(self) -> Tensor | None:
        """Which values are not just 0; None if none is."""
        used = self.index >= 0
        return None if bool(used.all()) else used

    def _move(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        if self._first is not None:
            moved = flat[:, self._first : self._first + len(self.index)]
        elif self._used is None:
            moved = flat.index_select(1, self.index)
        else:
            moved = flat.index_select(1, self.index.clamp(min=0)) * self._used
        return moved.reshape(len(x), *self.shape)

    def forward(self, *values: Tensor) -> Tensor:
        return self._move(values[0])

    def spread(self, *radii: Tensor) -> Tensor:
        return self._move(radii[0])

    def back(self, rows: Rows) -> Back:
        a = rows.whole(self.shape).coefficients.flatten(1)
        size = math.prod(self.source)
        if self._first is not None:
            end = self._first + len(self.index)
            out = a if size == len(self.index) else F.pad(a, (self._first, size - end))
        else:
            index, a = (self.index, a) if self._used is None else (self.index[self._used], a[:, self._used])
            out = a.new_zeros(len(a), size).index_add_(1, index, a)
        return [Rows(out.view(len(a), *self.source))], a.new_zeros(len(a))


@dataclass
class Sum(Node):
    """Σ sign · input: residual additions and subtractions."""

    signs: list[float]

    def forward(self, *values: Tensor) -> Tensor:
        total = values[0] * self.signs[0]
        for value, sign in zip(values[1:], self.signs[1:], strict=True):
            total = total + sign * value
        return total

    def spread(self, *radii: Tensor) -> Tensor:
        return torch.stack([radius * abs(sign) for radius, sign in zip(radii, self.signs, strict=True)]).sum(0)

    def back(self, rows: Rows) -> Back:
        parts = [Rows(rows.coefficients * sign, rows.origin) for sign in self.signs]
        return parts, rows.coefficients.new_zeros(len(rows))


@dataclass
class Product(Sum):
    """a·b, as ((a' + b')² − (a' − b')²) / 4 + v·a + u·b − u·v, where a'·b' = (a − u)·(b − v): see `products.py`.

    Its inputs are the sites of the two squares, and the scales v·a − u·v and u·b.
    """

    def factors(self, nodes: list[Node]) -> tuple[int, int]:
        """The positions of the scales a' and b'."""
        plus = nodes[self.inputs[0]].inputs[0]
        first, second = nodes[plus].inputs
        return first, second


@dataclass
class Larger(Sum):
    """max(a, b) = b + relu(a − b), value by value: its inputs are b and the site, whose input is the difference."""


@dataclass
class Site(Node):
    """One activation call. Where `grafted`, the neuron is slope·z + intercept; elsewhere it is `kind` of z.

    `kind` names the record of a ReLU or of a smooth activation; all else that bends is written with ReLUs, which have
    the same name. `grafted`, `slope` and `intercept` have the node's shape. `public` is the first ReLU of each
    activation of the model, which is one of gain·z + offset, where z is what the activation gets; those made from max
    pooling are not.
    """

    kind: str
    grafted: Tensor
    slope: Tensor
    intercept: Tensor
    public: bool = field(default=True)
    gain: float = field(default=1.0, metadata={"digest": False})  # its inputs say it, too
    offset: float = field(default=0.0, metadata={"digest": False})

    @property
    def activation(self) -> Activation:
        """The record of its kind."""
        return activation(self.kind)

    def forward(self, *values: Tensor) -> Tensor:
        z = values[0]
        return torch.where(self.grafted, self.line(z), self.activation.value(z))

    def line(self, z: Tensor) -> Tensor:
        """slope·z + intercept."""
        return self.slope.to(z.dtype) * z + self.intercept.to(z.dtype)

    def __getstate__(self) -> dict[str, Any]:
        record = self.activation
        if record.home == "__main__":
            raise LingraftError(
                f"the activation {self.kind!r} is registered in the script itself, which other processes do not run."
                " Register it in a module of its own, or verify in this process: workers=0."
            )
        return {**vars(self), "activation": record}  # so that a process that does not know it yet gets to know it

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: value for name, value in state.items() if name != "activation"})


def sources(nodes: list[Node], node: Node) -> list[int]:
    """The positions of what a node is computed from where a product is one, and not two squares."""
    return [*node.factors(nodes), *node.inputs[2:]] if isinstance(node, Product) else node.inputs
