"""Another value of an ONNX file as its output: one of several outputs, or what a node inside computes."""

from typing import Any

from onnx import helper

from lingraft.errors import LingraftError


def select_output(model: Any, output: str | int) -> bool:
    """Make a value, named or an output by its number, the only output, without the nodes that it does not need.

    Whether the file has another output than this.
    """
    graph = model.graph
    if isinstance(output, str):
        name = output
    elif output < len(graph.output):
        name = graph.output[output].name
    else:
        raise LingraftError(f"the property is about output {output + 1}, but the network has {len(graph.output)}.")
    others = [value.name for value in graph.output] != [name]
    known = {value.name: value for value in (*graph.value_info, *graph.output)}
    wanted, kept = {name}, []
    for node in reversed(graph.node):
        if not wanted.isdisjoint(node.output):
            wanted.update(node.input)
            kept.append(node)
    if not any(name in node.output for node in kept):
        raise LingraftError(f"the network computes nothing with the name {name!r}.")
    value = known.get(name) or helper.make_empty_tensor_value_info(name)
    del graph.output[:]
    graph.output.append(value)
    del graph.node[:]
    graph.node.extend(reversed(kept))
    return others
