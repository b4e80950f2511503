"""Changes of what a graph says: attributes, operations, versions, tensors, types, shapes, connections and names."""

from typing import Any

import numpy as np
import onnx
from chance import REAL, WHOLE, Rng, Skip, pick
from onnx import TensorProto, helper, numpy_helper

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


def two_values(rng: Rng, model: Any) -> str:
    """A network of one sum or difference of two values, of any type: whole numbers may wrap around."""
    kind = pick(
        rng,
        [
            TensorProto.UINT8,
            TensorProto.INT8,
            TensorProto.INT32,
            TensorProto.UINT32,
            TensorProto.FLOAT,
            TensorProto.DOUBLE,
        ],
    )
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node(pick(rng, ["Sub", "Add"]), ["x", "t"], ["z"]),
        helper.make_node(pick(rng, ["Identity", "Flatten", "MaxPool"]), ["z"], ["y"]),
    ]
    if nodes[-1].op_type == "MaxPool":
        nodes[-1].attribute.append(helper.make_attribute("kernel_shape", [1, 2]))
    values = [helper.make_tensor_value_info(name, kind, dims) for name, dims in (("x", [1, 1, 2, 2]), ("y", None))]
    model.graph.CopyFrom(helper.make_graph(nodes, "two", values[:1], values[1:]))
    model.opset_import[0].version = int(pick(rng, [11, 13, 14, 18]))
    return f"one operation on two values, {TensorProto.DataType.Name(kind)}"


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


def damage_numbers(rng: Rng, model: Any) -> str:
    """Numbers of a normalization or a scale that are very large or very small, so that products under- or overflow."""
    channels = int(pick(rng, [2, 3]))
    kind = pick(rng, [np.float32, np.float64, np.float64])
    low, high = (-38, 20) if kind == np.float32 else (-307, 95)

    def size() -> float:
        return float(10.0 ** rng.uniform(low, high)) if rng.random() < 0.7 else float(rng.normal())

    def variance() -> float:
        return float(10.0 ** rng.uniform(low, -low)) if rng.random() < 0.7 else float(rng.uniform(0, 2))

    nodes, constants, value = [], {}, "x"
    for i in range(int(rng.integers(1, 5))):
        operation = pick(rng, ["Mul", "Div", "BatchNormalization", "Add", "Gemm", "LeakyRelu", "Relu"])
        more: dict[str, Any] = {}
        names: list[str] = []
        if operation == "BatchNormalization":
            for part in "sbmv":
                constants[f"{part}{i}"] = np.array(
                    [variance() if part == "v" else size() for _ in range(channels)], kind
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


def balanced_numbers(rng: Rng, model: Any) -> str:
    """Factors that are tiny and huge but have a product of about 1: what is lost on the way is large in the end."""
    tiny = -rng.uniform(200, 350)
    parts = rng.dirichlet(np.full(int(pick(rng, [2, 3, 4])), 8.0))
    exponents = [tiny, *(-tiny * parts)] if rng.random() < 0.7 else [-tiny * parts[0], tiny, *(-tiny * parts[1:])]
    nodes, constants, value = [], {}, "x"
    for i, exponent in enumerate(exponents):
        kinds = ["Mul", "Div", "BatchNormalization"] if abs(exponent) < 300 else ["BatchNormalization"]
        operation = pick(rng, kinds)
        factor = rng.uniform(1, 9, 2)
        names, more = [f"c{i}"], {}
        if operation == "BatchNormalization":
            squared = float(rng.uniform(max(-290, 2 * (-300 - exponent)), min(290, 2 * (290 - exponent))))
            zeros = {f"b{i}": np.zeros(2), f"m{i}": np.zeros(2)}
            constants |= {
                f"s{i}": factor * 10.0 ** (exponent + squared / 2),
                **zeros,
                f"v{i}": np.full(2, 10.0**squared),
            }
            names, more = [f"s{i}", *zeros, f"v{i}"], {"epsilon": 0.0}
        else:
            constants[f"c{i}"] = (factor * 10.0 ** (exponent if operation == "Mul" else -exponent))[None]
        nodes.append(helper.make_node(operation, [value, *names], [f"z{i}"], **more))
        value = f"z{i}"
    nodes.append(helper.make_node("Identity", [value], ["y"]))
    values = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [1, 2]) for name in "xy"]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    model.graph.CopyFrom(helper.make_graph(nodes, "balanced", values[:1], values[1:], tensors))
    model.opset_import[0].version = 13
    return "extreme numbers that cancel"
