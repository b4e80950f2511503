"""What is understood of ONNX: for every operation its inputs, outputs and attributes, by operator set.

A node that does not fit its rule here is refused, before anything is computed: an attribute, an input or an output that
no rule knows would change the meaning. What an attribute's values may be is for `onnx_reader.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lingraft.checker.network import Value
from lingraft.checker.protobuf import OnnxNode
from lingraft.errors import LingraftError

#: The operator sets that the rules are about.
FIRST_SET, LAST_SET = 7, 22


@dataclass(frozen=True)
class Rule:
    """One operation, from operator set `first` to `last`.

    `inputs` has a word for each: value (computed from the image), weights (a constant of the image's type), integers
    (a constant of type int64), constant (any), any (a value or a constant); "?" means that it may be left out, "*" that
    there may be many. `outputs` is how many there may be; of these, only the first may be used, but those of Split.
    `attributes` are
    integer, integers, float, floats, text or tensor.
    """

    first: int
    last: int
    inputs: str
    attributes: dict[str, str]
    outputs: int = 1


_PLACES = {"auto_pad": "text", "kernel_shape": "integers", "pads": "integers", "strides": "integers"}
_NORMAL, _NUMBERS = {"epsilon": "float", "momentum": "float"}, "value weights weights weights weights"
_CEIL, _DILATIONS, _AXES = {"ceil_mode": "integer"}, {"dilations": "integers"}, {"axes": "integers"}
_AVERAGE = {**_PLACES, "count_include_pad": "integer"}
_MAXIMUM = {**_PLACES, "storage_order": "integer"}
_SINGLE = {"value_float": "float", "value_floats": "floats", "value_int": "integer", "value_ints": "integers"}

_REDUCE = {"keepdims": "integer", "noop_with_empty_axes": "integer"}
_RESIZE = {"mode": "text", "coordinate_transformation_mode": "text", "nearest_mode": "text", "cubic_coeff_a": "float",
           "exclude_outside": "integer", "extrapolation_value": "float"}  # fmt: skip

#: Outputs of an operation that may have as many as one likes.
MANY = 1 << 10

RULES: dict[str, list[Rule]] = {
    "Conv": [Rule(7, 22, "value weights weights?", {**_PLACES, **_DILATIONS, "group": "integer"})],
    "Gemm": [Rule(7, 22, "value weights weights?",
                  {"alpha": "float", "beta": "float", "transA": "integer", "transB": "integer"})],
    "MatMul": [Rule(7, 22, "value weights", {})],
    # with more than one output, sets 7 to 13 normalize by the batch, as in training
    "BatchNormalization": [Rule(7, 8, _NUMBERS, {**_NORMAL, "spatial": "integer"}), Rule(9, 13, _NUMBERS, _NORMAL),
                           Rule(14, 22, _NUMBERS, {**_NORMAL, "training_mode": "integer"})],
    "Add": [Rule(7, 22, "any any", {})],
    "Sub": [Rule(7, 22, "any any", {})],
    "Mul": [Rule(7, 22, "any any", {})],
    "Div": [Rule(7, 22, "any any", {})],
    "Mod": [Rule(10, 22, "constant constant", {"fmod": "integer"})],
    "Neg": [Rule(7, 22, "value", {})],
    "Relu": [Rule(7, 22, "value", {})],
    "LeakyRelu": [Rule(7, 22, "value", {"alpha": "float"})],
    "PRelu": [Rule(7, 22, "value weights", {})],
    "Clip": [Rule(7, 10, "value", {"min": "float", "max": "float"}), Rule(11, 22, "value weights? weights?", {})],
    "HardSigmoid": [Rule(7, 22, "value", {"alpha": "float", "beta": "float"})],
    "Abs": [Rule(7, 22, "value", {})],
    "AveragePool": [Rule(7, 9, "value", _AVERAGE), Rule(10, 18, "value", {**_AVERAGE, **_CEIL}),
                    Rule(19, 22, "value", {**_AVERAGE, **_CEIL, **_DILATIONS})],
    "GlobalAveragePool": [Rule(7, 22, "value", {})],
    "MaxPool": [Rule(7, 7, "value", _PLACES), Rule(8, 9, "value", _MAXIMUM, outputs=2),
                Rule(10, 22, "value", {**_MAXIMUM, **_CEIL, **_DILATIONS}, outputs=2)],
    "Flatten": [Rule(7, 22, "value", {"axis": "integer"})],
    "Reshape": [Rule(7, 13, "any integers", {}), Rule(14, 22, "any integers", {"allowzero": "integer"})],
    "Squeeze": [Rule(7, 12, "any", _AXES), Rule(13, 22, "any integers?", {})],
    "Unsqueeze": [Rule(7, 12, "any", _AXES), Rule(13, 22, "any integers", {})],
    "Transpose": [Rule(7, 22, "any", {"perm": "integers"})],
    "Concat": [Rule(7, 22, "any*", {"axis": "integer"})],
    "Pad": [Rule(7, 10, "value", {"mode": "text", "pads": "integers", "value": "float"}),
            Rule(11, 22, "value integers weights?", {"mode": "text"})],
    "Identity": [Rule(7, 22, "any", {})],
    "Dropout": [Rule(7, 11, "value", {"ratio": "float"}, outputs=2),
                Rule(12, 22, "value constant? constant?", {"seed": "integer"}, outputs=2)],
    "Shape": [Rule(7, 22, "any", {})],
    "Constant": [Rule(7, 11, "", {"value": "tensor"}), Rule(12, 22, "", {"value": "tensor", **_SINGLE})],
    "ConstantOfShape": [Rule(9, 22, "integers", {"value": "tensor"})],
    "Cast": [Rule(7, 22, "any", {"to": "integer"})],
    "Gather": [Rule(7, 22, "any constant", {"axis": "integer"})],
    "Slice": [Rule(7, 9, "any", {"axes": "integers", "starts": "integers", "ends": "integers"}),
              Rule(10, 22, "any integers integers integers? integers?", {})],
    "Split": [Rule(7, 12, "value", {"axis": "integer", "split": "integers"}, outputs=MANY),
              Rule(13, 17, "value integers?", {"axis": "integer"}, outputs=MANY),
              Rule(18, 22, "value integers?", {"axis": "integer", "num_outputs": "integer"}, outputs=MANY)],
    "ReduceMean": [Rule(7, 17, "value", {**_AXES, "keepdims": "integer"}), Rule(18, 22, "value integers?", _REDUCE)],
    "ReduceSum": [Rule(7, 12, "value", {**_AXES, "keepdims": "integer"}), Rule(13, 22, "value integers?", _REDUCE)],
    "ConvTranspose": [Rule(7, 22, "value weights weights?",
                           {**_PLACES, **_DILATIONS, "group": "integer", "output_padding": "integers"})],
    "Upsample": [Rule(7, 8, "value", {"mode": "text", "scales": "floats"}),
                 Rule(9, 9, "value constant", {"mode": "text"})],
    "Resize": [Rule(10, 10, "value constant", {"mode": "text"}),
               Rule(11, 12, "value constant constant integers?", _RESIZE),
               Rule(13, 17, "value constant? constant? integers?", _RESIZE),
               Rule(18, 22, "value constant? constant? integers?",
                    {**_RESIZE, "antialias": "integer", "keep_aspect_ratio_policy": "text"})],
}  # fmt: skip

_PYTHON = {"integer": int, "float": float, "text": str, "tensor": np.ndarray, "integers": list, "floats": list}


def require_known(node: OnnxNode, inputs: Sequence[Any], version: int, dtype: np.dtype[Any]) -> None:
    """Refuse a node that does not fit the rule of its operation; `dtype` is that of the image."""
    rules = RULES.get(node.operation)
    if rules is None:
        raise LingraftError(
            "not supported; certificates are about piecewise-linear networks of these layers:"
            " convolution, linear, batch norm, pooling, ReLU, leaky ReLU, PReLU, clip, hard sigmoid, absolute value,"
            " sums, means, slices, shapes"
        )
    rule = next((rule for rule in rules if rule.first <= version <= rule.last), None)
    if rule is None:
        raise LingraftError(f"not supported in operator set {version}")
    for name, value in node.attributes.items():
        if name not in rule.attributes:
            raise LingraftError(f"attribute {name} is not supported in operator set {version}")
        wanted = rule.attributes[name]
        items = value if isinstance(value, list) else []
        if type(value) is not _PYTHON[wanted] or not all(type(n) is _PYTHON[wanted[:-1]] for n in items):
            raise LingraftError(f"attribute {name} is not of type {wanted}")
        if name in ("axis", "axes") and version < 11 and min(items or [value], default=0) < 0:
            raise LingraftError(f"{name} counted from the end, which operator set {version} does not know")
    if not 1 <= len(node.outputs) <= rule.outputs:
        raise LingraftError(f"{len(node.outputs)} outputs are not supported")
    words = rule.inputs.split()
    if words[-1:] == ["any*"]:
        words = ["any"] * max(1, len(inputs))
    if len(inputs) > len(words):
        raise LingraftError(f"{len(inputs)} inputs are not supported in operator set {version}")
    for place, word in enumerate(words):
        given = inputs[place] if place < len(inputs) else None
        if given is None:
            if not word.endswith("?"):
                raise LingraftError(f"input {place} is missing")
        elif not _fits(given, word.removesuffix("?"), dtype):
            what = "a value" if isinstance(given, Value) else f"a constant of type {given.dtype}"
            raise LingraftError(f"input {place} is {what}, which is not supported: {_WORDS[word.removesuffix('?')]}")


_WORDS = {
    "value": "it must depend on the input of the network",
    "weights": "it must be a constant of the type of the network's input",
    "integers": "it must be a constant of type int64",
    "constant": "it must be a constant",
}


def _fits(given: Any, word: str, dtype: np.dtype[Any]) -> bool:
    if word == "any":
        return True
    if isinstance(given, Value):
        return word == "value"
    return (
        word == "constant"
        or (word == "weights" and given.dtype == dtype)
        or (word == "integers" and given.dtype == np.int64)
    )
