"""Changes of ONNX files: bytes, the wire format, and what the graph says."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import wire
from onnx import TensorProto, helper, numpy_helper

Rng = np.random.Generator


class Skip(Exception):
    """This change cannot be made here."""


def pick(rng: Rng, items: Any) -> Any:
    items = list(items)
    if not items:
        raise Skip
    return items[rng.integers(len(items))]


# --- bytes and fields -------------------------------------------------------------------------------------------------


def damage_bytes(rng: Rng, content: bytes) -> tuple[bytes, str]:
    """Some bytes changed, lost, doubled or inserted."""
    changed = bytearray(content)
    names = []
    for _ in range(int(rng.integers(1, 4))):
        if not changed:
            break
        place = int(rng.integers(len(changed)))
        end = place + int(rng.integers(1, 30))
        kind = pick(rng, ["flip", "flip", "byte", "byte", "cut", "drop", "double", "splice", "insert", "number"])
        names.append(kind)
        if kind == "flip":
            changed[place] ^= 1 << int(rng.integers(8))
        elif kind == "byte":
            changed[place] = int(rng.integers(256))
        elif kind == "cut":
            del changed[place:]
        elif kind == "drop":
            del changed[place:end]
        elif kind == "double":
            changed[place:place] = changed[place:end]
        elif kind == "splice":
            source = int(rng.integers(len(changed)))
            changed[place:end] = changed[source : source + end - place]
        elif kind == "insert":
            changed[place:place] = bytes(rng.integers(0, 256, int(rng.integers(1, 12)), dtype=np.uint8))
        else:
            changed[place : place + 8] = int(pick(rng, wire.INTEGERS)).to_bytes(8, "little")[: int(pick(rng, [4, 8]))]
    return bytes(changed), " ".join(names)


def damage_fields(rng: Rng, content: bytes) -> tuple[bytes, str]:
    """The wire format bent."""
    if rng.random() < 0.4:
        try:
            return _special_fields(rng, content)
        except Skip:
            pass
    root = wire.parse(content, "model")
    names = [wire.bend(rng, root) for _ in range(int(rng.choice([1, 1, 1, 2])))]
    return wire.pack(root), ", ".join(names)


def _special_fields(rng: Rng, content: bytes) -> tuple[bytes, str]:
    """Fields of numbers and names said twice, or with another wire type."""
    root = wire.parse(content, "model")
    everything = root.all()
    nodes = [m for m in everything if m.kind == "node"]
    tensors = [m for m in everything if m.kind == "tensor"]
    attributes = [m for m in everything if m.kind == "attribute"]
    choice = int(rng.integers(8))
    if choice == 0:  # one more input by a name that protobuf does not read
        node, size = pick(rng, nodes), int(pick(rng, [wire.FIXED32, wire.FIXED64, wire.VARINT]))
        at = max([i for i, f in enumerate(node.fields) if f.number == 1], default=-1) + 1
        name = wire.name_in(rng, root, size)
        node.fields.insert(at, wire.Field(1, size, name))
        return wire.pack(root), "an input of another wire type"
    if choice == 1:  # numbers twice, of which protobuf takes the last, or all
        attribute = pick(rng, [a for a in attributes if any(f.number in (2, 3, 7, 8) for f in a.fields)])
        at, part = pick(rng, [(i, f) for i, f in enumerate(attribute.fields) if f.number in (2, 3, 7, 8)])
        other = wire.Field(part.number, part.wire, part.value)
        wire.alter(rng, other)
        attribute.fields.insert(at + int(rng.integers(2)), other)
        return wire.pack(root), "a number of an attribute twice"
    if choice in (2, 3):  # the numbers of a tensor in two places or with other wire types
        tensor = pick(rng, [t for t in tensors if any(f.number in (9, 4) for f in t.fields)])
        numbers = next(f for f in tensor.fields if f.number in (9, 4))
        noise = rng.normal(0, 1, len(numbers.value) // 4 if isinstance(numbers.value, bytes) else 1).astype(np.float32)
        number = int(pick(rng, [4, 9, 4, 9, 5, 7, 10]))
        if rng.random() < 0.5 and numbers.number == 9:
            numbers.number = 4  # as float_data, which is as good
            number = int(pick(rng, [9, 9, 4]))
        size = int(pick(rng, [wire.BYTES, wire.FIXED32, wire.FIXED64, wire.VARINT]))
        place = int(rng.integers(len(tensor.fields) + 1))
        tensor.fields.insert(place, wire.Field(number, size, noise.tobytes()))
        return wire.pack(root), "numbers of a tensor in two ways"
    if choice == 4:  # dimensions packed, or of another wire type
        tensor = pick(rng, tensors)
        dims = [f for f in tensor.fields if f.number == 1]
        tensor.fields = [f for f in tensor.fields if f.number != 1]
        packed = b"".join(wire.varint(f.value) for f in dims if isinstance(f.value, int))
        if rng.random() < 0.5 and len(dims) > 1:
            dims = [dims[i] for i in rng.permutation(len(dims))]
            tensor.fields += dims
        else:
            tensor.fields.insert(0, wire.Field(1, wire.BYTES, packed))
            if rng.random() < 0.5:
                tensor.fields.insert(0, wire.Field(1, int(pick(rng, [wire.FIXED32, wire.FIXED64])), 1))
        return wire.pack(root), "dimensions packed or in another order"
    if choice == 5:  # the type of an attribute
        attribute = pick(rng, attributes)
        for part in attribute.fields:
            if part.number == 20:
                part.value = int(pick(rng, [0, 1, 2, 3, 4, 6, 7, 8, 2**32 + 1, 2**32 + 2, 2**32 + 7]))
        return wire.pack(root), "the type of an attribute"
    if choice == 6:  # an integer beyond what its field can hold
        message = pick(rng, [m for m in everything if any(f.wire == wire.VARINT for f in m.fields)])
        part = pick(rng, [f for f in message.fields if f.wire == wire.VARINT])
        part.value = part.value + int(pick(rng, [2**32, 2**33, 2**63, 2**64]))
        return wire.pack(root), "an integer that is too large"
    graph = next(m for m in everything if m.kind == "graph")
    part = pick(rng, [f for f in root.fields if f.value is graph])
    first, second = wire.Message("graph"), wire.Message("graph")
    for each in graph.fields:
        (first if rng.random() < 0.5 else second).fields.append(each)
    part.value = first
    root.fields.append(wire.Field(7, wire.BYTES, second))
    return wire.pack(root), "the graph in two parts"


# --- what the graph says ----------------------------------------------------------------------------------------------

#: Numbers for attributes and constants.
WHOLE = [-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
REAL = [0.0, 1.0, -1.0, 0.5, 2.0, -0.25, 0.1, 1e-5, 1e-30, 1e30, 1e-45, 3.0, 1.5]
OPERATIONS = [
    "Relu", "LeakyRelu", "Neg", "Identity", "Add", "Sub", "Mul", "Div", "Gemm", "MatMul", "Conv", "Concat", "MaxPool", "AveragePool",
    "GlobalAveragePool", "GlobalMaxPool", "Flatten", "Reshape", "Transpose", "BatchNormalization", "Dropout", "Squeeze", "Unsqueeze", "Pad",
    "Sigmoid", "Abs", "Clip", "PRelu", "Max", "Min", "Sum", "Mean", "ReduceSum", "ConvTranspose", "Elu", "Cast", "Slice", "Gather", "Expand",
    "ThresholdedRelu", "HardSigmoid", "InstanceNormalization", "LpNormalization", "Constant", "ConstantOfShape", "Shape",
]  # fmt: skip


def change_attribute(rng: Rng, model: Any) -> str:
    """An attribute with another value, name or type; left out, or twice."""
    node = pick(rng, [n for n in model.graph.node if n.attribute])
    place = int(rng.integers(len(node.attribute)))
    attribute = node.attribute[place]
    choice = int(rng.integers(9))
    if choice == 0:
        del node.attribute[place]
        return "attribute left out"
    if choice == 1:
        other = node.attribute.add()
        other.CopyFrom(attribute)
        _other_value(rng, other)
        return "attribute twice"
    if choice == 2:
        attribute.ref_attr_name = "alpha"
        return "attribute by reference"
    if choice == 3:
        attribute.name = pick(rng, [*_schema(model, node), attribute.name.upper(), attribute.name + " ", "x"])
        return "attribute renamed"
    _other_value(rng, attribute)
    return "attribute changed"


def _other_value(rng: Rng, attribute: Any) -> None:
    kind = attribute.type
    if kind == onnx.AttributeProto.FLOAT:
        attribute.f = float(pick(rng, REAL)) if rng.random() < 0.7 else float(rng.normal())
    elif kind == onnx.AttributeProto.INT:
        attribute.i = int(pick(rng, WHOLE))
    elif kind == onnx.AttributeProto.INTS and attribute.ints:
        choice = int(rng.integers(4))
        values = list(attribute.ints)
        if choice == 0:
            values[rng.integers(len(values))] = int(pick(rng, WHOLE))
        elif choice == 1:
            values = [values[i] for i in rng.permutation(len(values))]
        elif choice == 2:
            values = values[: int(rng.integers(len(values)))]
        else:
            values.append(int(pick(rng, WHOLE)))
        del attribute.ints[:]
        attribute.ints.extend(values)
    elif kind == onnx.AttributeProto.STRING:
        attribute.s = pick(
            rng, [b"SAME_UPPER", b"SAME_LOWER", b"VALID", b"NOTSET", b"reflect", b"edge", b"constant", b"", b"valid"]
        )
    elif kind == onnx.AttributeProto.TENSOR:
        change_tensor(rng, attribute.t)
    else:
        raise Skip


def _schema(model: Any, node: Any) -> dict[str, Any]:
    version = max((o.version for o in model.opset_import), default=13)
    try:
        return dict(onnx.defs.get_schema(node.op_type, min(max(version, 1), 22), "").attributes)
    except Exception as error:
        raise Skip from error


def add_attribute(rng: Rng, model: Any) -> str:
    """An attribute that the operation knows but does not have yet."""
    node = pick(rng, [n for n in model.graph.node if _schema_or_nothing(model, n)])
    known = {a.name for a in node.attribute}
    name, about = pick(rng, [(n, a) for n, a in _schema(model, node).items() if n not in known])
    kind = str(about.type).rsplit(".", 1)[-1]
    if kind == "FLOAT":
        value: Any = float(pick(rng, REAL))
    elif kind == "INT":
        value = int(pick(rng, WHOLE[:11]))
    elif kind == "INTS":
        size = {"kernel_shape": 2, "strides": 2, "dilations": 2, "pads": 4}.get(name, int(rng.integers(1, 5)))
        value = [int(pick(rng, [0, 1, 1, 2, 2, 3, -1])) for _ in range(size)]
    elif kind == "STRING":
        value = pick(rng, ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", "constant", "edge"])
    else:
        raise Skip
    node.attribute.append(helper.make_attribute(name, value))
    return f"attribute {name} added"


def _schema_or_nothing(model: Any, node: Any) -> bool:
    try:
        return bool(_schema(model, node))
    except Skip:
        return False


def same_padding(rng: Rng, model: Any) -> str:
    """Windows that pad themselves, with strides of any size."""
    node = pick(rng, [n for n in model.graph.node if n.op_type in ("Conv", "MaxPool", "AveragePool")])
    kept = [
        a for a in node.attribute if a.name not in ("pads", "auto_pad", "strides", "dilations", "count_include_pad")
    ]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.append(helper.make_attribute("auto_pad", pick(rng, ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])))
    node.attribute.append(helper.make_attribute("strides", [int(pick(rng, [1, 2, 3, 4, 5])) for _ in range(2)]))
    if rng.random() < 0.3:
        node.attribute.append(helper.make_attribute("dilations", [int(pick(rng, [1, 2])) for _ in range(2)]))
    if node.op_type == "AveragePool":
        node.attribute.append(helper.make_attribute("count_include_pad", int(rng.integers(2))))
    _end_with_average(model, node, rng)
    return "padding to the same size"


def _end_with_average(model: Any, node: Any, rng: Rng) -> None:
    """Behind a node of another shape, the mean of each channel is the output: so the shape matters no more."""
    if rng.random() < 0.15:
        return
    graph = model.graph
    place = list(graph.node).index(node)
    del graph.node[place + 1 :]
    graph.node.append(helper.make_node("GlobalAveragePool", [node.output[0]], ["mean of all"]))
    graph.node.append(helper.make_node("Flatten", ["mean of all"], ["last of all"]))
    graph.output[0].CopyFrom(helper.make_tensor_value_info("last of all", TensorProto.FLOAT, None))
    del graph.value_info[:]


def change_operation(rng: Rng, model: Any) -> str:
    """A node with another operation, or of another set."""
    node = pick(rng, model.graph.node)
    if rng.random() < 0.15:
        node.domain = pick(rng, ["ai.onnx", "com.microsoft", "ai.onnx.ml", "x"])
        return "node of another set"
    node.op_type = pick(rng, OPERATIONS)
    return f"operation {node.op_type}"


def change_opset(rng: Rng, model: Any) -> str:
    """Another version of the operators, or two, or none."""
    choice = rng.random()
    if choice < 0.8:
        model.opset_import[0].version = int(pick(rng, [*range(1, 26), 7, 8, 9, 6, 5, 100]))
    elif choice < 0.9:
        model.opset_import.append(
            helper.make_opsetid(pick(rng, ["", "ai.onnx", "com.microsoft"]), int(rng.integers(1, 20)))
        )
    else:
        model.opset_import[0].domain = pick(rng, ["ai.onnx", "ai.onnx.ml", "x"])
    if rng.random() < 0.3:
        model.ir_version = int(pick(rng, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 50]))
    return "operator set"


def change_tensor(rng: Rng, tensor: Any) -> str:
    """A tensor of another type or shape, or with other numbers."""
    array = numpy_helper.to_array(tensor)
    choice = int(rng.integers(8))
    if choice == 0:
        array = array.astype(
            pick(rng, [np.float64, np.float16, np.float32, np.int32, np.int64, np.uint8, np.int8, bool])
        )
    elif choice == 1:
        array = array.reshape(
            pick(rng, [array.shape[::-1], (array.size,), (1, *array.shape), (*array.shape, 1), array.shape])
        )
    elif choice == 2 and array.ndim > 1:
        array = np.ascontiguousarray(array.transpose(rng.permutation(array.ndim)))
    elif choice in (3, 4) and array.size:
        array = array.copy()
        value = (
            pick(rng, WHOLE)
            if array.dtype.kind in "iu"
            else pick(rng, [*REAL, 1e38, -1e-38, np.inf, np.nan, rng.normal()])
        )
        array.reshape(-1)[rng.integers(array.size)] = np.array(value).astype(array.dtype)
    elif choice == 5 and array.size:
        array = (array * array.dtype.type(pick(rng, [-1, 2, 3]))).astype(array.dtype)
    elif choice == 6:
        tensor.dims[:] = [int(pick(rng, [0, 1, 2, 3, -1])) for _ in range(int(rng.integers(0, 4)))]
        return "dimensions of a tensor"
    elif array.size:
        array = (
            np.delete(array, int(rng.integers(array.shape[0] if array.ndim else 1)), axis=0) if array.ndim else array
        )
    new = numpy_helper.from_array(array, tensor.name)
    if rng.random() < 0.3 and array.dtype == np.float32:  # as a list of numbers
        new = helper.make_tensor(tensor.name, TensorProto.FLOAT, array.shape, array.reshape(-1).tolist())
    tensor.CopyFrom(new)
    return "numbers, type or shape of a tensor"


def change_weights(rng: Rng, model: Any) -> str:
    """One of the weights."""
    if rng.random() < 0.2:
        one, two = pick(rng, model.graph.initializer), pick(rng, model.graph.initializer)
        one.name, two.name = two.name, one.name
        return "tensors swapped"
    return change_tensor(rng, pick(rng, model.graph.initializer))


def change_value(rng: Rng, model: Any) -> str:
    """The type or the shape of the input or output, or of a value between."""
    value = pick(
        rng,
        [model.graph.input[0], model.graph.input[0], *model.graph.input, *model.graph.output, *model.graph.value_info],
    )
    kind = value.type.tensor_type
    choice = int(rng.integers(5))
    if choice == 0:
        kind.elem_type = int(pick(rng, [0, 1, 2, 3, 6, 7, 9, 10, 11, 16]))
        return "element type of a value"
    if choice == 1 and kind.shape.dim:
        dim = pick(rng, kind.shape.dim)
        dim.dim_value = int(pick(rng, [0, 1, 2, 3, 4, -1]))
    elif choice == 2 and kind.shape.dim:
        pick(rng, kind.shape.dim).dim_param = "N"
    elif choice == 3:
        kind.ClearField("shape")
    else:
        dims = [d.dim_value for d in kind.shape.dim]
        dims = [*dims, 1] if rng.random() < 0.5 else [dims[i] for i in rng.permutation(len(dims))]
        name, element = value.name, kind.elem_type
        value.CopyFrom(helper.make_tensor_value_info(name, element, dims))
    return "shape of a value"


def other_type(rng: Rng, model: Any) -> str:
    """All real numbers of the file in another type: float64 or whole numbers."""
    kind = pick(
        rng,
        [
            TensorProto.DOUBLE,
            TensorProto.DOUBLE,
            TensorProto.DOUBLE,
            TensorProto.FLOAT16,
            TensorProto.INT32,
            TensorProto.UINT8,
            TensorProto.INT8,
            TensorProto.INT64,
        ],
    )
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            small = array if kind in (TensorProto.DOUBLE, TensorProto.FLOAT16) else np.clip(np.round(array * 4), 0, 100)
            small = small.astype(dtype)
            if kind == TensorProto.DOUBLE and rng.random() < 0.5:
                small = small * float(pick(rng, [1.0, 1 + 2**-40, 1e-200, 1e-300, 1e100, 1e-160, 1e60, 1e40, 1e-90]))
            tensor.CopyFrom(numpy_helper.from_array(small, tensor.name))
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = kind
    return f"all numbers {TensorProto.DataType.Name(kind)}"


def only_constants(rng: Rng, model: Any) -> str:
    """A network of one sum, difference or product with a constant of any type."""
    kind = pick(
        rng,
        [
            TensorProto.UINT8,
            TensorProto.INT8,
            TensorProto.INT32,
            TensorProto.INT64,
            TensorProto.FLOAT16,
            TensorProto.DOUBLE,
            TensorProto.FLOAT,
        ],
    )
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    constant = np.array([[1, 2, 3]]).astype(pick(rng, [dtype, dtype, np.float32]))
    nodes = [
        helper.make_node(pick(rng, ["Sub", "Add", "Mul", "Div"]), ["x", "c"], ["z"]),
        helper.make_node(pick(rng, ["Relu", "Neg", "Identity"]), ["z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "one", [helper.make_tensor_value_info("x", kind, [1, 3])], [helper.make_tensor_value_info("y", kind, [1, 3])],
        [numpy_helper.from_array(constant, "c")],
    )  # fmt: skip
    model.graph.CopyFrom(graph)
    model.opset_import[0].version = int(pick(rng, [7, 11, 13, 14, 18]))
    return f"one operation on {TensorProto.DataType.Name(kind)}"


def change_connections(rng: Rng, model: Any) -> str:
    """Inputs and outputs of nodes and of the graph: added, left out, swapped, renamed."""
    graph = model.graph
    node = pick(rng, graph.node)
    names = [
        "",
        *(t.name for t in graph.initializer),
        *(o for n in graph.node for o in n.output),
        *(v.name for v in graph.input),
    ]
    choice = int(rng.integers(10))
    if choice == 0 and node.input:
        node.input[rng.integers(len(node.input))] = pick(rng, names)
    elif choice == 1:
        node.input.append(pick(rng, names))
    elif choice == 2 and len(node.input) > 1:
        values = list(node.input)
        del node.input[:]
        node.input.extend(values[i] for i in rng.permutation(len(values)))
    elif choice == 3 and node.input:
        del node.input[-1]
    elif choice == 4:
        node.output.append(pick(rng, ["more", "", *names]))
    elif choice == 5:
        graph.output[0].name = pick(rng, names[1:])
        graph.output[0].type.tensor_type.ClearField("shape")
    elif choice == 6:
        value = helper.make_tensor_value_info(pick(rng, names[1:]), TensorProto.FLOAT, None)
        (graph.output if rng.random() < 0.5 else graph.input).append(value)
    elif choice == 7:
        graph.node.add().CopyFrom(pick(rng, graph.node))
    elif choice == 8:
        order = [graph.node[i] for i in rng.permutation(len(graph.node))]
        copies = [type(n)() for n in order]
        for copy, old in zip(copies, order, strict=True):
            copy.CopyFrom(old)
        del graph.node[:]
        graph.node.extend(copies)
    else:
        tensor = pick(rng, graph.initializer)
        shape = list(tensor.dims)
        graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, shape))
        if rng.random() < 0.5:
            graph.input.insert(0, graph.input[-1])
    return "connections"


def shadow(rng: Rng, model: Any) -> str:
    """Names that mean two things: tensors, values, functions."""
    graph = model.graph
    choice = int(rng.integers(6))
    if choice == 0:
        other = graph.initializer.add()
        other.CopyFrom(pick(rng, graph.initializer))
        change_tensor(rng, other)
    elif choice == 1:
        pick(rng, graph.initializer).name = pick(
            rng, [v.name for v in graph.input] + [o for n in graph.node for o in n.output]
        )
    elif choice == 2:
        pick(rng, graph.node).output[0] = pick(rng, [t.name for t in graph.initializer] + [v.name for v in graph.input])
    elif choice == 3:  # a function of the model with the name of an operation
        operation = pick(rng, [n.op_type for n in graph.node])
        body = [
            helper.make_node("Neg", ["X"], ["t"]),
            helper.make_node("Neg", ["t"], ["u"]),
            helper.make_node("Abs", ["u"], ["Y"]),
        ]
        sets = [helper.make_opsetid("", model.opset_import[0].version)]
        function = helper.make_function(pick(rng, ["", "ai.onnx", "x"]), operation, ["X"], ["Y"], body, sets)
        model.functions.append(function)
        model.ir_version = max(model.ir_version, 8)
    elif choice == 4:  # sparse weights of the same name
        tensor = pick(rng, graph.initializer)
        values = helper.make_tensor(tensor.name, TensorProto.FLOAT, [1], [1.0])
        where = helper.make_tensor("where", TensorProto.INT64, [1], [0])
        graph.sparse_initializer.append(helper.make_sparse_tensor(values, where, [max(1, int(np.prod(tensor.dims)))]))
    else:
        node = graph.node.add()
        node.CopyFrom(pick(rng, list(graph.node)[:-1]))
        node.op_type = "Identity"
        del node.attribute[:], node.input[1:]
    return "a name for two things"


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


def _node(operation: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(operation, inputs.split(" "), [output], **attributes)


def _whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _two_transposes(rng: Rng, x: str, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    rank = int(pick(rng, [2, 4]))
    order = [0, *(1 + rng.permutation(rank - 1))] if rng.random() < 0.8 else list(rng.permutation(rank))
    back = list(np.argsort(order)) if rng.random() < 0.7 else order
    return [
        _node("Transpose", x, f"{t}m", perm=[int(i) for i in order]),
        _node("Transpose", f"{t}m", f"{t}o", perm=[int(i) for i in back]),
    ], {}


def _normalize(rng: Rng, x: str, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    channels = int(pick(rng, [1, 2, 3, 4, 6, 8]))
    given = {f"{t}{part}": rng.uniform(0.2, 2, channels).astype(np.float32) for part in "sbmv"}
    node = _node("BatchNormalization", " ".join([x, *given]), f"{t}o")
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


def _constant_arithmetic(rng: Rng, x: str, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    operation = pick(rng, ["Add", "Sub", "Mul", "Div"])
    shape = pick(rng, [(), (1,), (1, 1), (1, 1, 1, 1)])
    order = f"{x} {t}c" if rng.random() < 0.6 else f"{t}c {x}"
    value = np.array(
        pick(rng, [*REAL[1:], rng.normal()]), dtype=pick(rng, [np.float32, np.float32, np.float32, np.float64])
    ).reshape(shape)
    return [_node(operation, order, f"{t}o")], {f"{t}c": value}


def _casts(rng: Rng, x: str, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    other = int(pick(rng, [1, 11, 10, 7, 6, 9, 2]))
    return [_node("Cast", x, f"{t}m", to=other), _node("Cast", f"{t}m", f"{t}o", to=1)], {}


def _reshapes(rng: Rng, x: str, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    shape = pick(
        rng,
        [
            _whole(0, -1),
            _whole(1, -1),
            _whole(-1),
            _whole(0, 0, -1),
            _whole(0, 0),
            _whole(1, 0, -1),
            _whole(0, -1, 1, 1),
        ],
    )
    node = _node("Reshape", f"{x} {t}s", f"{t}o")
    if rng.random() < 0.3:
        node.attribute.append(helper.make_attribute("allowzero", int(rng.integers(2))))
    return [node], {f"{t}s": shape}


def _dropout(rng: Rng, x: str, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    constants: dict[str, np.ndarray] = {f"{t}r": np.array(0.5, np.float32), f"{t}t": np.array(bool(rng.integers(2)))}
    node = _node("Dropout", pick(rng, [x, f"{x} {t}r", f"{x} {t}r {t}t", f"{x}  {t}t"]), f"{t}o")
    if rng.random() < 0.3:
        node.output.append(f"{t}mask")
    return [node], constants


def _squeezes(rng: Rng, x: str, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    axes = pick(rng, [[], [], [0], [1], [2], [-1], [1, 2], [0, 0], [2, 2]])
    if rng.random() < 0.5:
        return [_node("Unsqueeze", f"{x} {t}a", f"{t}m"), _node("Squeeze", f"{t}m {t}b", f"{t}o")], {
            f"{t}a": _whole(*pick(rng, [[1], [2], [0], [-1], [1, 2], axes])), f"{t}b": _whole(*axes)}  # fmt: skip
    return [_node("Squeeze", f"{x} {t}b", f"{t}o")], {f"{t}b": _whole(*axes)}


def _pads(rng: Rng, x: str, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    rank = int(pick(rng, [2, 4]))
    pads = _whole(*(int(n) for n in rng.choice([0, 0, 0, 1, -1], 2 * rank)))
    constants = {
        f"{t}p": pads,
        f"{t}v": np.array(pick(rng, [0.0, 1.0, -0.0]), np.float32),
        f"{t}a": _whole(*range(rank)),
    }
    node = _node("Pad", pick(rng, [f"{x} {t}p", f"{x} {t}p {t}v", f"{x} {t}p  {t}a"]), f"{t}o")
    if rng.random() < 0.4:
        node.attribute.append(helper.make_attribute("mode", pick(rng, ["constant", "edge", "reflect", "wrap"])))
    return [node], constants


def _flatten(rng: Rng, x: str, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    return [_node("Flatten", x, f"{t}o", axis=int(pick(rng, [0, 1, 2, -1, -2, -3, 3, 4])))], {}


def _single(rng: Rng, x: str, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
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
    node = _node(operation, x, f"{t}o")
    if operation == "LeakyRelu":
        node.attribute.append(helper.make_attribute("alpha", float(pick(rng, REAL))))
    return [node], {}


def _twice(rng: Rng, x: str, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    if rng.random() < 0.5:
        return [_node("Concat", f"{x} {x}", f"{t}o", axis=int(pick(rng, [0, 1, -1, -2, 2])))], {}
    return [_node(pick(rng, ["Add", "Sub", "Mul", "Max"]), f"{x} {x}", f"{t}o")], {}


def _pool(rng: Rng, x: str, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    node = _node(
        pick(rng, ["MaxPool", "AveragePool"]), x, f"{t}o", kernel_shape=[int(k) for k in rng.integers(1, 3, 2)]
    )
    for name, value in (
        ("strides", [int(k) for k in rng.integers(1, 3, 2)]), ("pads", [int(k) for k in rng.integers(0, 2, 4)]), ("ceil_mode", int(rng.integers(2))),
        ("count_include_pad", int(rng.integers(2))), ("dilations", [int(k) for k in rng.integers(1, 3, 2)]), ("auto_pad", "SAME_UPPER"),
    ):  # fmt: skip
        if rng.random() < 0.4:
            node.attribute.append(helper.make_attribute(name, value))
    return [node], {}


INSERTED: dict[str, Callable[[Rng, str, str], tuple[list[Any], dict[str, np.ndarray]]]] = {
    "transposes": _two_transposes, "batch norm": _normalize, "batch norms": _normalize, "arithmetic": _constant_arithmetic, "casts": _casts, "reshape": _reshapes,
    "dropout": _dropout, "squeeze": _squeezes, "pad": _pads, "flatten": _flatten, "an operation": _single, "twice": _twice, "pooling": _pool,
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


def _by_slice(rng: Rng, array: np.ndarray, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
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
        f"{t}s": _whole(start),
        f"{t}e": _whole(end),
        f"{t}a": _whole(axis - (array.ndim if rng.random() < 0.3 else 0)),
        f"{t}i": _whole(step),
    }
    return [_node("Slice", " ".join([*constants]), "?")], constants


def _by_cast(rng: Rng, array: np.ndarray, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    back = int(helper.np_dtype_to_tensor_dtype(array.dtype))
    source = array.astype(pick(rng, [np.float64, np.float32, np.int64, np.int32, np.uint8, np.int8, bool]))
    if rng.random() < 0.3:
        middle = int(pick(rng, [1, 6, 7, 11, 2, 9]))
        return [_node("Cast", f"{t}d", f"{t}m", to=middle), _node("Cast", f"{t}m", "?", to=back)], {f"{t}d": source}
    return [_node("Cast", f"{t}d", "?", to=back)], {f"{t}d": source}


def _by_gather(rng: Rng, array: np.ndarray, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    if not array.ndim:
        raise Skip
    axis = int(rng.integers(array.ndim))
    size = array.shape[axis]
    index = rng.integers(-size, size, size) if rng.random() < 0.7 else rng.integers(-2 * size, 2 * size, size)
    kind = pick(rng, [np.int64, np.int32])
    return [_node("Gather", f"{t}d {t}i", "?", axis=axis - (array.ndim if rng.random() < 0.3 else 0))], {
        f"{t}d": array,
        f"{t}i": index.astype(kind),
    }


def _by_fill(rng: Rng, array: np.ndarray, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    node = _node("ConstantOfShape", f"{t}s", "?")
    if rng.random() < 0.7:
        values = np.array(pick(rng, [[0.5], [0.25, 2.0], 0.75])).astype(array.dtype)
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(values)))
    return [node], {f"{t}s": _whole(*array.shape)}


def _by_shape(rng: Rng, array: np.ndarray, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    choice = int(rng.integers(4))
    if choice == 0:
        shape = _whole(*(n if rng.random() < 0.6 else int(pick(rng, [0, -1])) for n in array.shape))
        node = _node("Reshape", f"{t}d {t}s", "?")
        if rng.random() < 0.3:
            node.attribute.append(helper.make_attribute("allowzero", int(rng.integers(2))))
        return [node], {f"{t}d": array.reshape(-1) if rng.random() < 0.5 else array, f"{t}s": shape}
    if choice == 1:
        axes = pick(rng, [[], [0], [-1], [0, -1], [0, 1]])
        wide = np.expand_dims(array, tuple(axes)) if axes and len(set(axes)) == len(axes) else array[None]
        return [_node("Squeeze", f"{t}d {t}a" if rng.random() < 0.8 else f"{t}d", "?")], {
            f"{t}d": wide,
            f"{t}a": _whole(*axes),
        }
    if choice == 2:
        order = rng.permutation(array.ndim)
        node = _node("Transpose", f"{t}d", "?")
        if rng.random() < 0.7:
            node.attribute.append(helper.make_attribute("perm", [int(i) for i in order] or [0]))
            return [node], {f"{t}d": array.transpose(np.argsort(order))}
        return [node], {f"{t}d": array.T}
    if not array.ndim or len(array) < 2:
        raise Skip
    return [_node("Concat", f"{t}1 {t}2", "?", axis=int(pick(rng, [0, -array.ndim])))], {
        f"{t}1": array[1:],
        f"{t}2": array[:1],
    }


def _by_node(rng: Rng, array: np.ndarray, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    choice = int(rng.integers(5))
    if choice == 0:
        return [helper.make_node("Constant", [], ["?"], value=numpy_helper.from_array(array))], {}
    if choice == 1 and array.dtype == np.float32:
        return [helper.make_node("Constant", [], ["?"], value_floats=array.reshape(-1).tolist())], {}
    if choice == 2 and array.dtype == np.float32:
        return [helper.make_node("Constant", [], ["?"], value_float=0.3)], {}
    if choice == 3 and array.dtype == np.int64:
        return [helper.make_node("Constant", [], ["?"], value_ints=array.reshape(-1).tolist())], {}
    return [_node("Identity", f"{t}d", "?")], {f"{t}d": array}


def _by_sum(rng: Rng, array: np.ndarray, t: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    one = array.dtype.type(pick(rng, [1, 2, 3]))
    if array.dtype.kind == "i" and rng.random() < 0.3:
        big = np.full_like(array, np.iinfo(array.dtype).max)
        return [_node("Add", f"{t}d {t}1", f"{t}m"), _node("Add", f"{t}m {t}1", "?")], {f"{t}d": array, f"{t}1": big}
    operation, source = pick(rng, [("Add", array - one), ("Sub", array + one), ("Mul", array)])
    return [_node(operation, f"{t}d {t}1", "?")], {f"{t}d": source.astype(array.dtype), f"{t}1": np.array(one)}


COMPUTED: dict[str, Callable[[Rng, np.ndarray, str], tuple[list[Any], dict[str, np.ndarray]]]] = {
    "a slice": _by_slice, "slices": _by_slice, "a cast": _by_cast, "gathering": _by_gather, "filling": _by_fill, "another shape": _by_shape, "a node": _by_node, "a sum": _by_sum,
}  # fmt: skip


def damage_numbers(rng: Rng, model: Any) -> str:
    """Numbers of a normalization or a scale that are very large or very small, so that products under- or overflow."""
    channels = int(pick(rng, [2, 3]))
    kind = pick(rng, [np.float32, np.float64, np.float64])
    largest = 30 if kind == np.float32 else 150

    def size() -> float:
        return float(10.0 ** rng.uniform(-largest * 1.25, largest * 0.6)) if rng.random() < 0.7 else float(rng.normal())

    nodes, constants, value = [], {}, "x"
    for i in range(int(rng.integers(1, 5))):
        operation = pick(rng, ["Mul", "Div", "BatchNormalization", "Add", "Gemm", "LeakyRelu", "Relu"])
        more: dict[str, Any] = {}
        names: list[str] = []
        if operation == "BatchNormalization":
            for part in "sbmv":
                constants[f"{part}{i}"] = np.array(
                    [abs(size()) if part == "v" else size() for _ in range(channels)], kind
                )
                names.append(f"{part}{i}")
            if rng.random() < 0.5:
                constants[f"b{i}"][:] = constants[f"m{i}"][:] = 0
            more = {"epsilon": float(pick(rng, [0.0, 1e-5, 1e-30, 1e30]))}
        elif operation == "Gemm":
            constants[f"w{i}"] = np.array([[size() for _ in range(channels)] for _ in range(channels)], kind)
            names.append(f"w{i}")
        elif operation in ("Mul", "Div", "Add"):
            constants[f"c{i}"] = np.array([[size() for _ in range(channels)]], kind)
            names.append(f"c{i}")
        elif operation == "LeakyRelu":
            more = {"alpha": float(pick(rng, REAL))}
        nodes.append(helper.make_node(operation, [value, *names], [f"z{i}"], **more))
        value = f"z{i}"
    nodes.append(helper.make_node("Identity", [value], ["y"]))
    element = int(helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
    graph = helper.make_graph(
        nodes, "extreme", [helper.make_tensor_value_info("x", element, [1, channels])], [helper.make_tensor_value_info("y", element, [1, channels])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    model.graph.CopyFrom(graph)
    model.opset_import[0].version = 13
    return f"extreme numbers, {np.dtype(kind).name}"


#: Kinds of changes of what a graph says, in the words of the table.
GRAPH: dict[str, list[Callable[[Rng, Any], str]]] = {
    "attributes": [change_attribute, change_attribute, add_attribute, same_padding],
    "operations and versions": [change_operation, change_opset, change_opset],
    "tensors": [change_weights, change_weights, damage_numbers],
    "types and shapes": [change_value, change_value, other_type, only_constants],
    "connections and names": [change_connections, change_connections, shadow],
    "nodes inserted": [insert_node],
    "constants computed": [compute_constant],
}


def damage_graph(rng: Rng, content: bytes, kind: str) -> tuple[bytes, str]:
    """One to three changes of a kind; the last may be of any kind."""
    model = onnx.load_model_from_string(content)
    names = []
    for attempt in range(int(pick(rng, [1, 1, 1, 2, 2, 3]))):
        changes = GRAPH[kind] if attempt == 0 or rng.random() < 0.6 else pick(rng, GRAPH.values())
        for _ in range(20):
            try:
                names.append(pick(rng, changes)(rng, model))
                break
            except (
                Skip,
                ValueError,
                TypeError,
                IndexError,
                OverflowError,
            ):  # cannot be written, at least not like this
                continue
        if names and names[-1].startswith(("extreme", "one operation")):
            break
    return model.SerializeToString(), ", ".join(names)
