"""Tensors that a file computes from others: (random numbers, the tensor, a prefix for names) → nodes and constants."""

from collections.abc import Callable
from typing import Any

import numpy as np
from chance import Made, Rng, Skip, pick, whole, write_node
from onnx import helper, numpy_helper


def _by_slice(rng: Rng, array: np.ndarray, t: str) -> Made:
    if not array.ndim:
        raise Skip
    axis = int(rng.integers(array.ndim))
    size, step = array.shape[axis], int(pick(rng, [1, 1, 2, -1, -1, -2, -1]))
    extra = int(rng.integers(0, 4))
    longer = rng.permutation(max(1, abs(step) * size + extra) * max(1, array.size // max(size, 1))).astype(array.dtype)
    shape = list(array.shape)
    shape[axis] = max(1, abs(step) * size + extra)
    longer = (longer.reshape(shape) * 0.1).astype(array.dtype) if array.dtype.kind == "f" else longer.reshape(shape)
    n = shape[axis]
    near = [0, 1, -1, n, n - 1, -n, -n - 1, -n - 2, n + 3, -2 * n, size, -size, 2**63 - 1, -(2**63), 2**31 - 1]
    start, end = int(pick(rng, near)), int(pick(rng, near))
    constants = {
        f"{t}d": longer,
        f"{t}s": whole(start),
        f"{t}e": whole(end),
        f"{t}a": whole(axis - (array.ndim if rng.random() < 0.3 else 0)),
        f"{t}i": whole(step),
    }
    return [write_node("Slice", " ".join([*constants]), "?")], constants


def _by_short_slice(rng: Rng, array: np.ndarray, t: str) -> Made:
    """A slice of at most one number, and others behind: whether it is there decides how the whole is repeated."""
    if array.ndim != 1 or len(array) < 2:
        raise Skip
    n = 3
    near = [0, 1, -1, n - 1, n, -n, -n - 1, -n - 2, -2 * n, 2 * n, 2**63 - 1, -(2**63)]
    constants = {
        f"{t}d": np.arange(1, n + 1).astype(array.dtype),
        f"{t}s": whole(int(pick(rng, near))),
        f"{t}e": whole(int(pick(rng, near))),
    }
    constants |= {f"{t}a": whole(0), f"{t}i": whole(int(pick(rng, [-1, -1, 1, -2, 2])))}
    nodes = [write_node("Slice", " ".join(constants), f"{t}m"), write_node("Concat", f"{t}m {t}r", "?", axis=0)]
    return nodes, {**constants, f"{t}r": array[1:]}


def _by_cast(rng: Rng, array: np.ndarray, t: str) -> Made:
    back = int(helper.np_dtype_to_tensor_dtype(array.dtype))
    source = array.astype(pick(rng, [np.float64, np.float32, np.int64, np.int32, np.uint8, np.int8, bool]))
    if rng.random() < 0.3:
        middle = int(pick(rng, [1, 6, 7, 11, 2, 9]))
        return [write_node("Cast", f"{t}d", f"{t}m", to=middle), write_node("Cast", f"{t}m", "?", to=back)], {
            f"{t}d": source
        }
    return [write_node("Cast", f"{t}d", "?", to=back)], {f"{t}d": source}


def _by_gather(rng: Rng, array: np.ndarray, t: str) -> Made:
    if not array.ndim:
        raise Skip
    axis = int(rng.integers(array.ndim))
    size = array.shape[axis]
    index = rng.integers(-size, size, size) if rng.random() < 0.7 else rng.integers(-2 * size, 2 * size, size)
    kind = pick(rng, [np.int64, np.int32])
    return [write_node("Gather", f"{t}d {t}i", "?", axis=axis - (array.ndim if rng.random() < 0.3 else 0))], {
        f"{t}d": array,
        f"{t}i": index.astype(kind),
    }


def _by_fill(rng: Rng, array: np.ndarray, t: str) -> Made:
    node = write_node("ConstantOfShape", f"{t}s", "?")
    if rng.random() < 0.7:
        values = np.array(pick(rng, [[0.5], [0.25, 2.0], 0.75])).astype(array.dtype)
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(values)))
    return [node], {f"{t}s": whole(*array.shape)}


def _by_shape(rng: Rng, array: np.ndarray, t: str) -> Made:
    choice = int(rng.integers(4))
    if choice == 0:
        shape = whole(*(n if rng.random() < 0.6 else int(pick(rng, [0, -1])) for n in array.shape))
        node = write_node("Reshape", f"{t}d {t}s", "?")
        if rng.random() < 0.3:
            node.attribute.append(helper.make_attribute("allowzero", int(rng.integers(2))))
        return [node], {f"{t}d": array.reshape(-1) if rng.random() < 0.5 else array, f"{t}s": shape}
    if choice == 1:
        axes = pick(rng, [[], [0], [-1], [0, -1], [0, 1]])
        wide = np.expand_dims(array, tuple(axes)) if axes and len(set(axes)) == len(axes) else array[None]
        return [write_node("Squeeze", f"{t}d {t}a" if rng.random() < 0.8 else f"{t}d", "?")], {
            f"{t}d": wide,
            f"{t}a": whole(*axes),
        }
    if choice == 2:
        order = rng.permutation(array.ndim)
        node = write_node("Transpose", f"{t}d", "?")
        if rng.random() < 0.7:
            node.attribute.append(helper.make_attribute("perm", [int(i) for i in order] or [0]))
            return [node], {f"{t}d": array.transpose(np.argsort(order))}
        return [node], {f"{t}d": array.T}
    if not array.ndim or len(array) < 2:
        raise Skip
    return [write_node("Concat", f"{t}1 {t}2", "?", axis=int(pick(rng, [0, -array.ndim])))], {
        f"{t}1": array[1:],
        f"{t}2": array[:1],
    }


def _by_node(rng: Rng, array: np.ndarray, t: str) -> Made:
    choice = int(rng.integers(5))
    if choice == 0:
        return [helper.make_node("Constant", [], ["?"], value=numpy_helper.from_array(array))], {}
    if choice == 1 and array.dtype == np.float32:
        return [helper.make_node("Constant", [], ["?"], value_floats=array.reshape(-1).tolist())], {}
    if choice == 2 and array.dtype == np.float32:
        return [helper.make_node("Constant", [], ["?"], value_float=0.3)], {}
    if choice == 3 and array.dtype == np.int64:
        return [helper.make_node("Constant", [], ["?"], value_ints=array.reshape(-1).tolist())], {}
    return [write_node("Identity", f"{t}d", "?")], {f"{t}d": array}


def _by_sum(rng: Rng, array: np.ndarray, t: str) -> Made:
    one = array.dtype.type(pick(rng, [1, 2, 3]))
    if array.dtype.kind == "i" and rng.random() < 0.3:
        big = np.full_like(array, np.iinfo(array.dtype).max)
        return [write_node("Add", f"{t}d {t}1", f"{t}m"), write_node("Add", f"{t}m {t}1", "?")], {
            f"{t}d": array,
            f"{t}1": big,
        }
    operation, source = pick(rng, [("Add", array - one), ("Sub", array + one), ("Mul", array)])
    return [write_node(operation, f"{t}d {t}1", "?")], {f"{t}d": source.astype(array.dtype), f"{t}1": np.array(one)}


COMPUTED: dict[str, Callable[[Rng, np.ndarray, str], Made]] = {
    "a slice": _by_slice, "slices": _by_slice, "a short slice": _by_short_slice, "a cast": _by_cast, "gathering": _by_gather, "filling": _by_fill, "another shape": _by_shape, "a node": _by_node, "a sum": _by_sum,
}  # fmt: skip


def compute_constant(rng: Rng, model: Any) -> str:
    """A tensor that the file computes from others: slices, casts, shapes."""
    graph = model.graph
    tensor = pick(rng, graph.initializer)
    array = numpy_helper.to_array(tensor)
    tag = f"c{rng.integers(10**6)}"
    kind = pick(rng, list(COMPUTED))
    nodes, constants = COMPUTED[kind](rng, array, tag)
    wanted = tensor.name
    graph.initializer.remove(tensor)
    for name, part in constants.items():
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(part), name))
    nodes[-1].output[0] = wanted
    for i, node in enumerate(nodes):
        graph.node.insert(i, node)
    return f"a constant by {kind}"
