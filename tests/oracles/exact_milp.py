"""An oracle that finds exact minima without the verifier.

The oracle shares only the traced graph with the verifier. Every affine call is executed by torch itself, on a batch
whose first entry holds the constants and whose other entries hold the coefficients of one variable each; activations
become mixed-integer constraints, and HiGHS minimizes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor, fx, nn

from lingraft.model.grafted_activation import GraftedActivation
from lingraft.model.sites import sites_of
from lingraft.model.tracing import trace
from lingraft.solver.region import Region


@dataclass
class Optimum:
    """Smallest value over the region as the solver sees it, and a point of the region that attains it."""

    value: float
    point: Tensor


@dataclass
class _Program:
    """A mixed-integer program under construction: bounds of variables, which are integer, and rows a·v within limits."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[int] = field(default_factory=list)
    rows: list[dict[int, float]] = field(default_factory=list)
    limits: list[tuple[float, float]] = field(default_factory=list)

    def variable(self, lower: float, upper: float, integer: bool = False) -> int:
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(int(integer))
        return len(self.lower) - 1

    def constrain(self, row: dict[int, float], lower: float, upper: float) -> None:
        self.rows.append(row)
        self.limits.append((lower, upper))


class Oracle(fx.Interpreter):
    """Exact minima of linear functions of the outputs, or of pre-activations, of a piecewise-linear model over a box.

    Inside, a value is a batch: entry 0 holds the constants, entry 1 + v the coefficients of variable v.
    """

    def __init__(self, model: nn.Module, region: Region):
        traced = trace(model)
        super().__init__(traced)
        self.model, self.region = model, region
        self.activations = {node.name: site for node, site in sites_of(traced).items()}
        self.program = _Program()
        #: pre-activations by site name
        self.sites: dict[str, Tensor] = {}
        with torch.no_grad():
            self.output = self.run(None)

    # one call of the graph

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "placeholder":
            return self._input()
        if n.op in ("get_attr", "output"):
            return super().run_node(n)
        call = self.activations.get(n.name)
        if call is not None:
            source = n.args[0] if n.args else n.kwargs["input"]
            return self._activate(n, call, self._long(self.env[source]))  # type: ignore[index]
        module = self.fetch_attr(str(n.target)) if n.op == "call_module" else None
        if isinstance(module, nn.MaxPool2d) or getattr(n.target, "__name__", "").startswith("boolean_dispatch"):
            return self._pool(n, module)
        if getattr(n.target, "__name__", "") == "max_pool2d":
            return self._pool(n, module)
        return self._affine(n)

    def _input(self) -> Tensor:
        lower, upper = self.region.lower.double(), self.region.upper.double()
        for low, high in zip(lower.flatten().tolist(), upper.flatten().tolist(), strict=True):
            self.program.variable(low, high)
        size = lower.numel()
        return torch.cat([torch.zeros(1, size), torch.eye(size)]).double().view(1 + size, *lower.shape)

    def _affine(self, n: fx.Node) -> Any:
        """Let torch compute the call on all entries at once, and take the constant part out of the coefficients."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        values = [a for a in _tensors((args, kwargs)) if self._is_value(a)]
        if not values:
            return getattr(self, n.op)(n.target, args, kwargs)
        rows = 1 + len(self.program.lower)
        longer = fx.node.map_aggregate((args, kwargs), lambda a: self._long(a) if self._is_value(a) else a)
        blank = fx.node.map_aggregate(longer, lambda a: torch.zeros_like(a) if self._is_value(a) else a)
        result = getattr(self, n.op)(n.target, *longer)
        if not isinstance(result, Tensor):
            return result
        zero = getattr(self, n.op)(n.target, *blank)
        assert result.shape[0] == rows, n
        return torch.cat([result[:1], result[1:] - zero[1:]])

    def _is_value(self, a: Any) -> bool:
        return isinstance(a, Tensor) and a.dim() > 1 and a.shape[0] > self.region.lower.numel()

    def _long(self, value: Tensor) -> Tensor:
        missing = 1 + len(self.program.lower) - len(value)
        return torch.cat([value, value.new_zeros(missing, *value.shape[1:])])

    # nonlinear calls

    def _range(self, column: Tensor) -> tuple[float, float]:
        """Interval of one value (1 + variables,)."""
        a = column[1:].numpy()
        lower, upper = np.array(self.program.lower[: len(a)]), np.array(self.program.upper[: len(a)])
        constant = float(column[0])
        return (
            constant + float(np.minimum(a * lower, a * upper).sum()),
            constant + float(np.maximum(a * lower, a * upper).sum()),
        )

    def _row(self, column: Tensor, scale: float = 1.0) -> dict[int, float]:
        places = column[1:].nonzero().flatten().tolist()
        return {v: scale * float(column[1 + v]) for v in places}

    def _relu(self, column: Tensor) -> Tensor:
        """max(value, 0) as a value of its own."""
        low, high = self._range(column)
        if low >= 0:
            return column
        if high <= 0:
            return torch.zeros_like(column)
        program, constant = self.program, float(column[0])
        h, on = program.variable(0.0, high), program.variable(0, 1, integer=True)
        minus = self._row(column, -1.0)
        program.constrain(minus | {h: 1.0}, constant, np.inf)  # h ≥ z
        program.constrain({h: 1.0, on: -high}, -np.inf, 0.0)  # h ≤ high·on
        program.constrain(minus | {h: 1.0, on: -low}, -np.inf, constant - low)  # h ≤ z − low·(1 − on)
        return self._unit(h)

    def _unit(self, variable: int) -> Tensor:
        unit = torch.zeros(1 + len(self.program.lower), dtype=torch.float64)
        unit[1 + variable] = 1
        return unit

    def _activate(self, n: fx.Node, call: Any, z: Tensor) -> Tensor:
        assert call.activation.pieces is not None, "the oracle knows piecewise-linear activations only"
        self.sites[call.name] = z
        module = self.fetch_attr(str(n.target)) if n.op == "call_module" else None
        flat, results = z.flatten(1), []
        grafted = module.mask.flatten() if isinstance(module, GraftedActivation) else torch.zeros(flat.shape[1])
        for i in range(flat.shape[1]):
            column = flat[:, i]
            if grafted[i]:
                assert isinstance(module, GraftedActivation)
                line = column * float(module.slope.flatten()[i])
                line[0] += float(module.intercept.flatten()[i])
                results.append(line)
            else:
                pieces = call.activation.pieces
                total = float(pieces.slope) * column
                total[0] += pieces.shift
                if pieces.bend is not None:
                    before, after, gain, offset = pieces.bend
                    moved = gain * column
                    moved[0] += offset
                    bent = self._relu(moved)
                    total = _pad_to(total, len(bent)) + (after - before) * bent
                if pieces.ceiling is not None:
                    below = -total
                    below[0] += pieces.ceiling
                    total = -self._relu(below)
                    total[0] += pieces.ceiling
                results.append(total)
        return self._stack(results, z.shape[1:])

    def _stack(self, columns: list[Tensor], shape: Sequence[int]) -> Tensor:
        rows = 1 + len(self.program.lower)
        return torch.stack([_pad_to(c, rows) for c in columns], dim=1).view(rows, *shape)

    def _pool(self, n: fx.Node, module: nn.Module | None) -> Tensor:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        value = self._long(args[0])
        pool = module or nn.MaxPool2d(*args[1:], **{k: v for k, v in kwargs.items() if k != "return_indices"})
        kernel, stride, padding, dilation = (
            (s, s) if isinstance(s, int) else s for s in (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
        )
        _, channels, height, width = value.shape
        size = [
            (side + 2 * p - d * (k - 1) - 1) // s + 1
            for side, k, s, p, d in zip((height, width), kernel, stride, padding, dilation, strict=False)
        ]
        results = []
        for c in range(channels):
            for y in range(size[0]):
                for x in range(size[1]):
                    window = [
                        (y * stride[0] - padding[0] + i * dilation[0], x * stride[1] - padding[1] + j * dilation[1])
                        for i in range(kernel[0])
                        for j in range(kernel[1])
                    ]
                    inside = [(a, b) for a, b in window if 0 <= a < height and 0 <= b < width]
                    results.append(self._largest([value[:, c, a, b] for a, b in inside]))
        return self._stack(results, (channels, *size))

    def _largest(self, columns: list[Tensor]) -> Tensor:
        ranges = [self._range(column) for column in columns]
        floor, top = max(low for low, _ in ranges), max(high for _, high in ranges)
        program = self.program
        m = program.variable(floor, top)
        chosen = []
        for column, (low, _) in zip(columns, ranges, strict=True):
            one = program.variable(0, 1, integer=True)
            minus = self._row(column, -1.0) | {m: 1.0}
            program.constrain(minus, float(column[0]), np.inf)
            program.constrain(minus | {one: top - low}, -np.inf, float(column[0]) + top - low)
            chosen.append(one)
        program.constrain(dict.fromkeys(chosen, 1.0), 1, 1)
        return self._unit(m)

    # questions

    def margin(self, spec: Tensor, offset: float = 0.0) -> Tensor:
        """The column of spec·outputs + offset, spec (classes,)."""
        column = self._long(self.output) @ spec
        column[0] += offset
        return column

    def minimum(self, column: Tensor, at_most_zero: Tensor | None = None) -> Optimum | None:
        """The smallest value of a column, where another one is ≤ 0 if given; None if that is nowhere."""
        program = self.program
        n = len(program.lower)
        column = _pad_to(column, 1 + n)
        rows, limits = list(program.rows), list(program.limits)
        if at_most_zero is not None:
            rows.append(self._row(at_most_zero))
            limits.append((-np.inf, -float(at_most_zero[0])))
        matrix = np.zeros((len(rows), n))
        for i, row in enumerate(rows):
            matrix[i, list(row)] = list(row.values())
        result = milp(
            column[1:].numpy(),
            integrality=np.array(program.integer),
            bounds=Bounds(np.array(program.lower), np.array(program.upper)),
            constraints=[LinearConstraint(matrix, *np.array(limits).T)] if rows else [],
            options={"mip_rel_gap": 0.0},
        )
        if result.status == 2:
            return None
        assert result.status == 0, result.message
        size = self.region.lower.numel()
        point = torch.from_numpy(result.x[:size]).view(self.region.lower.shape)
        point = torch.minimum(torch.maximum(point, self.region.lower), self.region.upper)
        return Optimum(float(result.fun) + float(column[0]), point)


def _pad_to(column: Tensor, rows: int) -> Tensor:
    return torch.cat([column, column.new_zeros(rows - len(column))])


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, dict):
        yield from _tensors(tuple(values.values()))
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _tensors(value)
