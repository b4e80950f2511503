"""Every linear node: rows passed back are its adjoint, intervals have exactly the right radius."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lingraft.solver.nodes import Convolution, Dense, Gather, Node, Scale, Sum
from lingraft.solver.rows import Rows, select

SEEDS = st.integers(0, 10**6)


def _convolution(
    generator: torch.Generator,
    source: tuple[int, int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
) -> Convolution:
    out = 3
    height = (source[0] + padding[0] + padding[2] - dilation[0] * (kernel[0] - 1) - 1) // stride[0] + 1
    width = (source[1] + padding[1] + padding[3] - dilation[1] * (kernel[1] - 1) - 1) // stride[1] + 1
    matrix = torch.randn(out, kernel[0] * kernel[1] * source[2], generator=generator).double()
    bias = torch.randn(out, generator=generator).double()
    return Convolution("c", (height, width, out), [0], source, matrix, bias, kernel, stride, padding, dilation)


def _check(node: Node, sources: list[tuple[int, ...]], rows: Rows, generator: torch.Generator) -> None:
    """⟨rows, node(v)⟩ = Σ ⟨back(rows), v⟩ + constant for random values."""
    values = [torch.randn(1, *shape, generator=generator).double() for shape in sources]
    parts, constant = node.back(rows)
    expected = (rows.whole(node.shape).coefficients * node.forward(*values)).flatten(1).sum(1)
    found = constant.clone()
    for part, value, shape in zip(parts, values, sources, strict=True):
        found += (part.whole(shape).coefficients * value).flatten(1).sum(1)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def _matrices(node: Node, sources: list[tuple[int, ...]]) -> list[Tensor]:
    """The node's matrix for each input, one column a forward pass."""
    zeros = [torch.zeros(1, *shape).double() for shape in sources]
    constant = node.forward(*zeros).flatten()
    result = []
    for i, shape in enumerate(sources):
        size = int(torch.tensor(shape).prod())
        columns = []
        for j in range(size):
            one = torch.zeros(1, size, dtype=torch.float64)
            one[0, j] = 1
            inputs = [one.view(1, *shape) if k == i else zero for k, zero in enumerate(zeros)]
            columns.append(node.forward(*inputs).flatten() - constant)
        result.append(torch.stack(columns, 1))
    return result


def _check_radius(node: Node, sources: list[tuple[int, ...]], generator: torch.Generator) -> None:
    radii = [torch.rand(1, *shape, generator=generator).double() for shape in sources]
    expected = sum(m.abs() @ r.flatten() for m, r in zip(_matrices(node, sources), radii, strict=True))
    torch.testing.assert_close(node.spread(*radii).flatten(), expected, rtol=1e-9, atol=1e-12)


def _random_rows(node: Node, generator: torch.Generator, windows: bool) -> Rows:
    if windows and len(node.shape) == 3:
        return select(torch.randint(node.size, (4,), generator=generator), node.shape, torch.float64)
    return Rows(torch.randn(3, *node.shape, generator=generator).double())


pair = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=60, deadline=None)
@given(SEEDS, pair, pair, st.tuples(*[st.integers(0, 2)] * 4), st.tuples(st.integers(1, 2), st.integers(1, 2)))
def test_convolution(
    seed: int, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple, dilation: tuple[int, int]
) -> None:
    generator = torch.Generator().manual_seed(seed)
    source = (5, 6, 2)
    node = _convolution(generator, source, kernel, stride, padding, dilation)
    _check(node, [source], _random_rows(node, generator, windows=False), generator)
    _check(node, [source], _random_rows(node, generator, windows=True), generator)
    _check_radius(node, [source], generator)


@settings(max_examples=40, deadline=None)
@given(SEEDS, pair, pair, st.tuples(*[st.integers(0, 2)] * 4), st.tuples(st.integers(1, 2), st.integers(1, 2)))
def test_windows_through_two_convolutions(
    seed: int, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple, dilation: tuple[int, int]
) -> None:
    generator = torch.Generator().manual_seed(seed)
    first = _convolution(generator, (9, 9, 1), kernel, stride, padding, dilation)
    if min(first.shape) < 2:
        return
    second = _convolution(generator, first.shape, (2, 2), (1, 2), (1, 0, 1, 1), (1, 1))  # type: ignore[arg-type]
    x = torch.randn(1, 9, 9, 1, generator=generator).double()
    indices = torch.randint(second.size, (6,), generator=generator)
    (middle,), constant = second.neurons(indices)
    (rows,), more = first.back(middle)
    found = (rows.whole((9, 9, 1)).coefficients * x).flatten(1).sum(1) + constant + more
    torch.testing.assert_close(found, second.forward(first.forward(x)).flatten()[indices], rtol=1e-9, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_neurons_are_rows_of_single_values(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight, bias = (torch.randn(*s, generator=generator).double() for s in [(5, 7), (5,)])
    for node, source in [
        (_convolution(generator, (4, 5, 2), (2, 3), (2, 1), (1, 0, 0, 1), (1, 2)), (4, 5, 2)),
        (Dense("d", (5,), [0], weight, bias), (7,)),
    ]:
        indices = torch.randint(node.size, (6,), generator=generator)
        (short,), constant = node.neurons(indices)
        (long,), expected = node.back(select(indices, node.shape, torch.float64))
        torch.testing.assert_close(short.whole(source).coefficients, long.whole(source).coefficients)
        torch.testing.assert_close(constant, expected)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.booleans())
def test_other_linear_nodes(seed: int, windows: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (3, 4, 2)
    size = 24
    weight, bias = torch.randn(2, *shape, generator=generator).double()
    index = torch.randint(-1, size, (2 * 5 * 3,), generator=generator)
    dense = [torch.randn(*s, generator=generator).double() for s in [(5, size), (5,)]]
    nodes: list[tuple[Node, list[tuple[int, ...]]]] = [
        (Scale("s", shape, [0], weight, bias), [shape]),
        (Gather("g", (2, 5, 3), [0], shape, index), [shape]),
        (Gather("g", (size,), [0], shape, torch.randperm(size, generator=generator)), [shape]),
        (Gather("g", (4, 1, 2), [0], shape, torch.arange(5, 13)), [shape]),
        (Gather("g", (size,), [0], shape, torch.arange(size)), [shape]),
        (Sum("+", shape, [0, 1], [1.0, -1.0]), [shape, shape]),
        (Sum("+", shape, [0, 1, 2], [1.0, -2.5, 0.3]), [shape, shape, shape]),
        (Dense("d", (5,), [0], *dense), [(size,)]),
    ]
    for node, sources in nodes:
        _check(node, sources, _random_rows(node, generator, windows), generator)
        _check_radius(node, sources, generator)
