"""Changes in place in a traced graph: what is read after one reads its result, so that all calls have new results.

A graph knows which call reads which value, not which values share memory. Where a value that may share memory with the
changed one is read later, the graph is refused, unless it is that very tensor under another name.
"""

import torch
from torch import fx, nn

from lingraft.errors import LingraftError
from lingraft.model import operations
from lingraft.model.activations import of_call, of_module
from lingraft.model.grafted_activation import GraftedActivation
from lingraft.model.operations import of_layer

#: Set in the `meta` of a call that was written as an operator in place (h += y).
MARK = "lingraft_in_place"

#: Attributes of a tensor that do not tell its values.
NUMBERS = frozenset({"shape", "ndim", "dtype", "device"})

#: Calls whose result has memory of its own, besides activations and operations that compute anything. All others may
#: give a view, or their input itself.
_NEW = frozenset({torch.cat, torch.concat, torch.clone, torch.stack, "clone"})


def read_results(graph: fx.Graph, root: nn.Module) -> None:
    """Let everything that is read after a change in place read the result of it, in `graph`, traced from `root`."""
    memory: dict[fx.Node, set[fx.Node]] = {}  # what may share memory with a value
    names: dict[fx.Node, set[fx.Node]] = {}  # what is that very tensor
    for node in graph.nodes:
        memory[node], names[node] = {node}, {node}
        changed = _changed(node, root)
        if changed is not None:
            for other in memory[changed]:
                if other.op == "get_attr":
                    raise LingraftError(
                        f"{title(node, root)} changes {other.target!r}, a tensor of the model itself, in place."
                        " Do it out of place: y = y + …"
                    )
                for user in [user for user in other.users if node < user]:
                    if other not in names[changed]:
                        raise LingraftError(
                            f"{title(node, root)} changes {other.name!r} in place, or may do so, and {user.name!r}"
                            " reads that later. Do it out of place: y = y + …"
                        )
                    user.replace_input_with(other, node)
        for source in node.all_input_nodes if changed is None or node.target == "set_" else [changed]:
            if source is changed or _is_same(node, root):
                _join(names, node, source)
            if source is changed or not (_is_new(node, root) or is_number(source)):
                _join(memory, node, source)


def is_number(node: fx.Node) -> bool:
    """Whether the node is a size of a tensor or the like, or computed from such things alone."""
    if node.op == "call_method":
        return node.target in ("size", "dim", "numel")
    if node.op != "call_function":
        return False
    if node.target is getattr:
        return node.args[1] in NUMBERS
    return getattr(node.target, "__module__", "") in ("_operator", "math", "builtins") and all(
        is_number(argument) for argument in node.all_input_nodes
    )


def title(node: fx.Node, root: nn.Module) -> str:
    """The call as messages name it."""
    if node.op == "call_module":
        return f"layer {node.target!r} ({type(root.get_submodule(str(node.target))).__name__})"
    return f"operation {node.name!r} ({getattr(node.target, '__name__', node.target)})"


def _changed(node: fx.Node, root: nn.Module) -> fx.Node | None:
    """The value that a call changes in place, if any."""
    if node.kwargs.get("out") is not None:
        raise LingraftError(f"{title(node, root)} writes its result to out=…, in place. Use the result instead.")
    if node.op == "call_module":
        in_place = bool(getattr(root.get_submodule(str(node.target)), "inplace", False))
    elif node.op == "call_method":
        name = str(node.target)
        in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
    elif node.op == "call_function":
        name, home = (str(getattr(node.target, key, "")) for key in ("__name__", "__module__"))
        named = name.partition(".")[0].endswith("_") and home != "_operator"  # relu_, but not and_
        in_place = named or MARK in node.meta or bool(node.kwargs.get("inplace"))
    else:
        return None
    if not in_place:
        return None
    source = node.args[0] if node.args else node.kwargs.get("input")
    if not isinstance(source, fx.Node):
        raise LingraftError(f"{title(node, root)} changes several tensors in place. Do it out of place.")
    return None if is_number(source) else source


def _is_new(node: fx.Node, root: nn.Module) -> bool:
    if node.op == "call_module":
        module = root.get_submodule(str(node.target))
        operation = of_layer(module)
        if isinstance(module, GraftedActivation) or of_module(module) is not None:
            return True
    else:
        operation = operations.of_call(node.target)
        if node.target in _NEW or of_call(node.target) is not None or is_number(node):
            return True
    return operation is not None and operation.gives_new_memory


def _is_same(node: fx.Node, root: nn.Module) -> bool:
    if node.op == "call_module":
        return type(root.get_submodule(str(node.target))) is nn.Identity
    return node.op == "call_method" and node.target == "detach"


def _join(families: dict[fx.Node, set[fx.Node]], one: fx.Node, other: fx.Node) -> None:
    family = families[one] | families[other]
    for node in family:
        families[node] = family
