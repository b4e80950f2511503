"""Nodes put between a value and what uses it: (random numbers, the value, a prefix for names) → nodes and constants."""

from collections.abc import Callable
from typing import Any

import numpy as np
from chance import REAL, Made, Rng, Skip, pick, whole, write_node
from onnx import helper, numpy_helper


def _two_transposes(rng: Rng, x: str, t: str) -> Made:
    rank = int(pick(rng, [2, 4]))
    order = [0, *(1 + rng.permutation(rank - 1))] if rng.random() < 0.8 else list(rng.permutation(rank))
    back = list(np.argsort(order)) if rng.random() < 0.7 else order
    return [
        write_node("Transpose", x, f"{t}m", perm=[int(i) for i in order]),
        write_node("Transpose", f"{t}m", f"{t}o", perm=[int(i) for i in back]),
    ], {}


def _normalize(rng: Rng, x: str, t: str) -> Made:
    channels = int(pick(rng, [1, 2, 3, 4, 6, 8]))
    given = {f"{t}{part}": rng.uniform(0.2, 2, channels).astype(np.float32) for part in "sbmv"}
    node = write_node("BatchNormalization", " ".join([x, *given]), f"{t}o")
    node.output.extend(pick(rng, [[], [], [f"{t}1", f"{t}2"], [f"{t}1", f"{t}2", f"{t}3", f"{t}4"]]))
    for name, value in (
        ("epsilon", float(pick(rng, [1e-5, 0.1, 1e-3]))),
        ("momentum", 0.5),
        ("training_mode", int(rng.integers(2))),
        ("spatial", 1),
    ):
        if rng.random() < 0.3:
            node.attribute.append(helper.make_attribute(name, value))
    return [node], given


def _constant_arithmetic(rng: Rng, x: str, t: str) -> Made:
    operation = pick(rng, ["Add", "Sub", "Mul", "Div"])
    shape = pick(rng, [(), (1,), (1, 1), (1, 1, 1, 1)])
    order = f"{x} {t}c" if rng.random() < 0.6 else f"{t}c {x}"
    value = np.array(
        pick(rng, [*REAL[1:], rng.normal()]), dtype=pick(rng, [np.float32, np.float32, np.float32, np.float64])
    ).reshape(shape)
    return [write_node(operation, order, f"{t}o")], {f"{t}c": value}


def _squeezed_constant(rng: Rng, x: str, t: str) -> Made:
    """A sum or product with a constant whose shape says which way it is repeated."""
    shape = pick(
        rng, [(1, 1, 3, 1), (1, 3, 1), (1, 1, 1, 3), (3, 1), (1, 1, 2, 1), (1, 2, 1, 1), (1, 4, 1, 1), (1, 1, 4, 1)]
    )
    axes = pick(rng, [None, [], [], [0], [1], [-1], [0, 1], [0, -1], [-1, 0]])
    constants = {f"{t}c": rng.normal(0, 1, shape).astype(np.float32)}
    if axes is not None:
        constants[f"{t}a"] = whole(*axes)
    nodes = [
        write_node("Squeeze", " ".join(constants), f"{t}m"),
        write_node(pick(rng, ["Add", "Mul"]), f"{x} {t}m", f"{t}o"),
    ]
    return nodes, constants


def _casts(rng: Rng, x: str, t: str) -> Made:
    other = int(pick(rng, [1, 11, 10, 7, 6, 9, 2]))
    return [write_node("Cast", x, f"{t}m", to=other), write_node("Cast", f"{t}m", f"{t}o", to=1)], {}


def _reshapes(rng: Rng, x: str, t: str) -> Made:
    shape = pick(
        rng,
        [
            whole(0, -1),
            whole(1, -1),
            whole(-1),
            whole(0, 0, -1),
            whole(0, 0),
            whole(1, 0, -1),
            whole(0, -1, 1, 1),
        ],
    )
    node = write_node("Reshape", f"{x} {t}s", f"{t}o")
    if rng.random() < 0.3:
        node.attribute.append(helper.make_attribute("allowzero", int(rng.integers(2))))
    return [node], {f"{t}s": shape}


def _dropout(rng: Rng, x: str, t: str) -> Made:
    constants: dict[str, np.ndarray] = {f"{t}r": np.array(0.5, np.float32), f"{t}t": np.array(bool(rng.integers(2)))}
    node = write_node("Dropout", pick(rng, [x, f"{x} {t}r", f"{x} {t}r {t}t", f"{x}  {t}t"]), f"{t}o")
    if rng.random() < 0.3:
        node.output.append(f"{t}mask")
    return [node], constants


def _squeezes(rng: Rng, x: str, t: str) -> Made:
    axes = pick(rng, [[], [], [0], [1], [2], [-1], [1, 2], [0, 0], [2, 2]])
    if rng.random() < 0.5:
        return [write_node("Unsqueeze", f"{x} {t}a", f"{t}m"), write_node("Squeeze", f"{t}m {t}b", f"{t}o")], {
            f"{t}a": whole(*pick(rng, [[1], [2], [0], [-1], [1, 2], axes])), f"{t}b": whole(*axes)}  # fmt: skip
    return [write_node("Squeeze", f"{x} {t}b", f"{t}o")], {f"{t}b": whole(*axes)}


def _pads(rng: Rng, x: str, t: str) -> Made:
    rank = int(pick(rng, [2, 4]))
    pads = whole(*(int(n) for n in rng.choice([0, 0, 0, 1, -1], 2 * rank)))
    constants = {
        f"{t}p": pads,
        f"{t}v": np.array(pick(rng, [0.0, 1.0, -0.0]), np.float32),
        f"{t}a": whole(*range(rank)),
    }
    node = write_node("Pad", pick(rng, [f"{x} {t}p", f"{x} {t}p {t}v", f"{x} {t}p  {t}a"]), f"{t}o")
    if rng.random() < 0.4:
        node.attribute.append(helper.make_attribute("mode", pick(rng, ["constant", "edge", "reflect", "wrap"])))
    return [node], constants


def _flatten(rng: Rng, x: str, t: str) -> Made:
    return [write_node("Flatten", x, f"{t}o", axis=int(pick(rng, [0, 1, 2, -1, -2, -3, 3, 4])))], {}


def _single(rng: Rng, x: str, t: str) -> Made:
    operation = pick(
        rng,
        [
            "Identity",
            "Neg",
            "Relu",
            "LeakyRelu",
            "Sum",
            "Mean",
            "Max",
            "Clip",
            "Abs",
            "Elu",
            "Shape",
            "GlobalAveragePool",
        ],
    )
    node = write_node(operation, x, f"{t}o")
    if operation == "LeakyRelu":
        node.attribute.append(helper.make_attribute("alpha", float(pick(rng, REAL))))
    return [node], {}


def _twice(rng: Rng, x: str, t: str) -> Made:
    if rng.random() < 0.5:
        return [write_node("Concat", f"{x} {x}", f"{t}o", axis=int(pick(rng, [0, 1, -1, -2, 2])))], {}
    return [write_node(pick(rng, ["Add", "Sub", "Mul", "Max"]), f"{x} {x}", f"{t}o")], {}


def _pool(rng: Rng, x: str, t: str) -> Made:
    node = write_node(
        pick(rng, ["MaxPool", "AveragePool"]), x, f"{t}o", kernel_shape=[int(k) for k in rng.integers(1, 3, 2)]
    )
    for name, value in (
        ("strides", [int(k) for k in rng.integers(1, 3, 2)]), ("pads", [int(k) for k in rng.integers(0, 2, 4)]), ("ceil_mode", int(rng.integers(2))),
        ("count_include_pad", int(rng.integers(2))), ("dilations", [int(k) for k in rng.integers(1, 3, 2)]), ("auto_pad", "SAME_UPPER"),
    ):  # fmt: skip
        if rng.random() < 0.4:
            node.attribute.append(helper.make_attribute(name, value))
    return [node], {}


INSERTED: dict[str, Callable[[Rng, str, str], Made]] = {
    "transposes": _two_transposes, "batch norm": _normalize, "batch norms": _normalize, "arithmetic": _constant_arithmetic, "a squeezed constant": _squeezed_constant, "casts": _casts, "reshape": _reshapes,
    "dropout": _dropout, "squeeze": _squeezes, "pad": _pads, "flatten": _flatten, "an operation": _single, "twice": _twice, "pooling": _pool,
}  # fmt: skip


def insert_node(rng: Rng, model: Any) -> str:
    """One or two nodes between a value and what uses it."""
    graph = model.graph
    node = pick(rng, [n for n in graph.node if n.input])
    place, slot = list(graph.node).index(node), 0
    before = node.input[slot]
    weights = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    if before in weights and node.op_type not in ("Mul", "Add", "Sub"):
        raise Skip
    tag = f"n{rng.integers(10**6)}"
    kind = pick(rng, list(INSERTED))
    made, constants = INSERTED[kind](rng, before, tag)
    for name, array in constants.items():
        graph.initializer.append(numpy_helper.from_array(array, name))
    for i, each in enumerate(made):
        graph.node.insert(place + i, each)
    graph.node[place + len(made)].input[slot] = f"{tag}o"
    return f"{kind} inserted"
