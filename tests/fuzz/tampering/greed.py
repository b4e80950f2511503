"""Small files that ask for a lot: of memory, of time, or of both. All that they say fits together."""

import itertools
from typing import Any

import numpy as np
from chance import Rng, Skip, pick, whole, write_node
from damage_certificates import Loose
from onnx import TensorProto, helper, numpy_helper

#: How much more.
SIZES = [100, 1_000, 10_000, 100_000, 1_000_000]


def grow_certificate(rng: Rng, loose: Loose) -> str:
    """More rounds, leaves, forms, clips, multipliers or constraints than anybody needs."""
    arrays, size = loose.arrays, int(pick(rng, SIZES))
    trees = [name.split(".")[0] for name in arrays if name.endswith(".in_force") and name.count(".") == 1]
    choice = int(rng.integers(9))
    if choice == 0 and loose.header["label"] is None:  # constraints
        times = max(2, size // len(arrays["offsets"]) // 10)
        arrays["constraints"] = np.tile(arrays["constraints"], (times, 1))
        arrays["offsets"] = np.tile(arrays["offsets"], times)
        if rng.random() < 0.5:
            loose.header["group"] = len(arrays["offsets"]) // int(pick(rng, [1, 2]))
        return "many constraints"
    if choice == 1:
        loose.header["about"] = {"text": "x" * min(size, 900_000)}
        return "a long header"
    tree = pick(rng, trees)
    part = {name.split(".", 1)[1]: name for name in arrays if name.startswith(f"{tree}.")}
    taps = len(arrays["taps"])
    if choice in (2, 3):  # rounds: many of one bound each, or one of many bounds
        rows = min(size, 20_000_000 // max(taps, 1))
        arrays[part["rounds.taps"]] = np.zeros(rows, np.int32)
        arrays[part["rounds.sides"]] = np.ones(rows, np.int8)
        arrays[part["rounds.gamma"]] = np.zeros(rows, np.float32)
        arrays[part["rounds.alpha"]] = np.zeros((rows, taps), np.uint8)
        many = rng.random() < 0.5
        arrays[part["rounds.sizes"]] = np.ones(rows, np.int32) if many else np.array([rows], np.int32)
        return "many rounds" if many else "a large round"
    if choice in (4, 5):  # a chain of splits, or a full tree
        leaves = min(size, 20_000_000 // max(taps, 1))
        if rng.random() < 0.5:
            nodes = np.tile(np.array([0, -1], np.int32), leaves - 1)
        else:
            depth = int(np.log2(leaves))
            nodes, leaves = np.full(1, -1, np.int32), 2**depth
            for level in range(depth):
                nodes = np.concatenate([[np.int32(level % max(taps, 1))], nodes, nodes])
        arrays[part["nodes"]] = np.append(nodes, -1).astype(np.int32) if len(nodes) % 2 == 0 else nodes.astype(np.int32)
        arrays[part["in_force"]] = np.zeros(leaves, np.int32)
        arrays[part["multipliers.alpha"]] = np.zeros((leaves, taps), np.uint8)
        arrays[part["multipliers.sizes"]] = np.zeros(leaves, np.int32)
        arrays[part["multipliers.taps"]], arrays[part["multipliers.beta"]] = (
            np.zeros(0, np.int32),
            np.zeros(0, np.float32),
        )
        for name in ("nodes", "in_force", "forms", "multipliers.sizes", "multipliers.taps"):
            arrays[part[f"clips.{name}"]] = np.zeros(0, np.int32)
        arrays[part["clips.multipliers.beta"]] = np.zeros(0, np.float32)
        arrays[part["clips.multipliers.alpha"]] = np.zeros((0, taps), np.uint8)
        return "many leaves"
    if choice == 6 and len(arrays[part["multipliers.sizes"]]):  # multipliers of one leaf
        sizes = arrays[part["multipliers.sizes"]]
        sizes[0] += size - int(sizes.sum())
        arrays[part["multipliers.taps"]] = np.zeros(size, np.int32)
        arrays[part["multipliers.beta"]] = np.full(size, 1e-9, np.float32)
        if sizes[0] < 0:
            raise Skip
        return "many multipliers"
    if choice == 7:  # values of γ
        arrays[part["clips.grid"]] = np.full(size, 0.5, np.float32)
        return "a long grid"
    rows = min(size, 20_000_000 // max(taps, 1))  # sets of forms
    arrays[part["clips.forms_in_force"]] = np.zeros(rows, np.int32)
    arrays[part["clips.forms_alpha"]] = np.zeros((rows, taps), np.uint8)
    arrays[part["clips.groups"]] = np.tile(np.arange(taps, dtype=np.int32), (rows, 1))
    forms = arrays[part["clips.forms"]]
    forms[:] = np.arange(len(forms)) % rows
    return "many forms"


def grow_network(rng: Rng, model: Any) -> str:
    """A graph with huge values, huge constants, or very many nodes."""
    graph, size = model.graph, int(pick(rng, SIZES))
    side = int(np.sqrt(size))
    shape = [1, 1, 3, 3]
    nodes: list[Any] = []
    constants: dict[str, np.ndarray] = {}
    kind = pick(rng, ["pad", "concat", "convolution", "dense", "max pool", "average pool", "chain", "sum", "relu"])
    if kind == "pad":
        constants["p"] = whole(0, 0, side, side, 0, 0, side, side)
        nodes = [write_node("Pad", "x p", "a"), write_node("Relu", "a", "b")]
    elif kind == "concat":
        nodes = [
            write_node("Concat", f"{'b' if not i else f'a{i}'} " + ("b" if not i else f"a{i}"), f"a{i + 1}", axis=1)
            for i in range(int(np.log2(size)))
        ]
        nodes = [write_node("Relu", "x", "b"), *nodes, write_node("Relu", nodes[-1].output[0], "c")]
    elif kind == "convolution":
        constants["s"] = whole(*pick(rng, [(side, 1, 3, 3), (8, 1, side, side), (size, 1, 1, 1)]))
        reach = int(constants["s"][2]) + int(pick(rng, [0, 0, 30]))
        nodes = [_filled("s", "w"), write_node("Conv", "x w", "a", pads=[reach] * 4), write_node("Relu", "a", "b")]
    elif kind == "dense":
        constants |= {"s": whole(9, side), "t": whole(side, side)}
        nodes = [_filled("s", "w"), _filled("t", "v"), write_node("Flatten", "x", "f"), write_node("MatMul", "f w", "a"),
                 write_node("Relu", "a", "b"), write_node("MatMul", "b v", "c"), write_node("Relu", "c", "d")]  # fmt: skip
    elif kind in ("max pool", "average pool"):
        wide = min(side, 1000)
        more = {"count_include_pad": 1} if kind == "average pool" else {}
        name = "MaxPool" if kind == "max pool" else "AveragePool"
        nodes = [
            write_node(name, "x", "a", kernel_shape=[wide, wide], pads=[wide - 1] * 4, **more),
            write_node("Relu", "a", "b"),
        ]
    elif kind == "chain":
        names = ["x", *(f"a{i}" for i in range(min(size, 20_000)))]
        nodes = [write_node(pick(rng, ["Relu", "LeakyRelu", "Identity"]), a, b) for a, b in itertools.pairwise(names)]
    elif kind == "sum":
        names = ["x", *(f"a{i}" for i in range(min(size, 5_000)))]
        nodes = [
            write_node("Add", f"{names[int(rng.integers(i + 1))]} {a}", b)
            for i, (a, b) in enumerate(itertools.pairwise(names))
        ]
    else:
        shape = [1, 1, side, side]
        nodes = [
            write_node("Relu", "x", "a"),
            write_node("Transpose", "a", "t", perm=[0, 1, 3, 2]),
            write_node("Sub", "t x", "z"),
            write_node("Relu", "z", "b"),
        ]
    last = nodes[-1].output[0]
    nodes.append(write_node(pick(rng, ["Flatten", "Identity"]), last, "y"))
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", shape), ("y", None))
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph.CopyFrom(helper.make_graph(nodes, "greedy", values[:1], values[1:], tensors))
    model.opset_import[0].version = 13
    return f"a large {kind}"


def _filled(shape: str, output: str) -> Any:
    return write_node("ConstantOfShape", shape, output, value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.01]))
