"""Finding grafted sites again in an imported graph, where they are written with standard operations only.

With m the mask, a the slopes, b the intercepts, keep = 1 − m, and any order of the sums:

    act(x)·keep + x·(m·a) + m·b        the form "output"
    act(x·keep) + x·(m·a) + m·b        the form "input"
    act(W₁x + b₁) + (W₂x + b₂)         a fully connected site: each row is zero in one of the two layers
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import fx, nn

from lingraft.formats.graph_builder import GraphBuilder
from lingraft.model.activations import Activation, of_module
from lingraft.model.grafted_activation import GraftedActivation

#: An exporter nests the sum of a site three deep at most; a limit keeps the search linear.
_MAX_DEPTH = 8


@dataclass
class _Line:
    """slope·x + intercept, both of the neuron shape."""

    slope: np.ndarray
    intercept: np.ndarray

    def plus(self, other: "_Line", sign: int = 1) -> "_Line":
        return _Line(self.slope + sign * other.slope, self.intercept + sign * other.intercept)


def restore_grafted_sites(builder: GraphBuilder) -> None:
    """Replace every grafted site in the graph, which has its output already, by a GraftedActivation.

    An activation that is multiplied by zero in some neurons has no effect there, so these count as grafted with the
    line 0 and cost a verifier nothing.
    """
    for node in list(builder.graph.nodes):
        module = builder.module_of(node)
        activation = None if module is None else of_module(module)
        if activation is not None:
            _restore_masked(builder, node, activation) or _restore_two_layers(builder, node, activation)


def _restore_masked(builder: GraphBuilder, node: fx.Node, activation: Activation) -> bool:
    """The forms "output" and "input", and activations whose result is partly multiplied by zero."""
    x = node.args[0]
    assert isinstance(x, fx.Node)
    user = _only_user(node)
    keep = None if user is None else _factor(builder, user, node)
    if user is not None and keep is not None:
        last, rest = user, 0.0
    else:
        keep, last, rest = _factor(builder, x), node, activation.at_zero
        if keep is None:
            return False
    mask = keep == 0
    if not mask.any():
        return False
    line = _Line(np.zeros_like(keep), np.where(mask, np.float32(rest), np.float32(0)))
    if not (mask | (keep == 1)).all():
        # Something is scaled as well: only the dead neurons are taken out, the factors stay.
        _replace(builder, node, node, x, activation, mask, line)
        return True
    if last is node:
        x = x.args[0]
        assert isinstance(x, fx.Node)
    while (user := _only_user(last)) is not None:
        added = _added(builder, user, last, x)
        if added is None or added.slope[~mask].any() or added.intercept[~mask].any():
            break
        line, last = line.plus(added), user
    _replace(builder, node, last, x, activation, mask, line)
    return True


def _restore_two_layers(builder: GraphBuilder, node: fx.Node, activation: Activation) -> bool:
    """The form with two fully connected layers, which become one again; the lines become the identity."""
    bent, total = node.args[0], _only_user(node)
    if not isinstance(bent, fx.Node) or total is None or total.target is not torch.add or activation.at_zero:
        return False
    straight = total.args[1] if total.args[0] is node else total.args[0]
    if not isinstance(straight, fx.Node) or not _only_user(bent) or not _only_user(straight):
        return False
    first, second = builder.module_of(bent), builder.module_of(straight)
    if not isinstance(first, nn.Linear) or not isinstance(second, nn.Linear) or bent.args != straight.args:
        return False
    if first.weight.shape != second.weight.shape or len(builder.shape(bent)) != 2:
        return False
    with torch.no_grad():
        mask = _zero_rows(first)
        if not mask.any() or not (mask | _zero_rows(second)).all():
            return False
        outputs, inputs = first.weight.shape
        merged = nn.Linear(inputs, outputs, device="meta")
        merged.weight = nn.Parameter(first.weight + second.weight)
        biases = [layer.bias for layer in (first, second) if layer.bias is not None]
        merged.bias = nn.Parameter(sum(biases, torch.zeros(outputs)))
    chosen = mask.numpy()
    line = _Line(chosen.astype(np.float32), np.zeros(outputs, np.float32))
    source = bent.args[0]
    assert isinstance(source, fx.Node)
    builder.exchange(bent, merged, source)
    _replace(builder, node, total, bent, activation, chosen, line)
    return True


def _replace(
    builder: GraphBuilder,
    node: fx.Node,
    last: fx.Node,
    x: fx.Node,
    activation: Activation,
    mask: np.ndarray,
    line: _Line,
) -> None:
    """Make the activation `node` a grafted one of x, whose result stands for what was `last`."""
    site = GraftedActivation(activation, mask.shape)
    site.graft(torch.from_numpy(mask), 0.0, 0.0)
    with torch.no_grad():
        site.slope.copy_(torch.from_numpy(line.slope))
        site.intercept.copy_(torch.from_numpy(line.intercept))
    builder.exchange(node, site, x)
    if last is not node:
        last.replace_all_uses_with(node)


def _added(builder: GraphBuilder, user: fx.Node, last: fx.Node, x: fx.Node) -> _Line | None:
    """What `user` adds to `last`, if that is a line in x."""
    if user.target not in (torch.add, torch.sub) or builder.shape(user) != builder.shape(x):
        return None
    if user.target is torch.add:
        other = user.args[1] if user.args[0] is last else user.args[0]
        return _line(builder, other, x)
    line = _line(builder, user.args[1], x) if user.args[0] is last else None
    return None if line is None else _Line(-line.slope, -line.intercept)


def _line(builder: GraphBuilder, value: object, x: fx.Node, depth: int = 0) -> _Line | None:
    """`value` as a line in each coordinate of x, or None if it is anything else."""
    if not isinstance(value, fx.Node) or depth > _MAX_DEPTH:
        return None
    neurons = builder.shape(x)[1:]
    zeros = np.zeros(neurons, np.float32)
    if value is x:
        return _Line(np.ones(neurons, np.float32), zeros)
    if value.op == "get_attr":
        constant = _constant(builder, value, x)
        return None if constant is None else _Line(zeros, constant)
    if value.target is torch.mul and value.args[0] is x:
        factor = _factor(builder, value, x)
        return None if factor is None else _Line(factor, zeros)
    if value.target in (torch.add, torch.sub):
        left, right = (_line(builder, argument, x, depth + 1) for argument in value.args)
        if left is not None and right is not None:
            return left.plus(right, 1 if value.target is torch.add else -1)
    return None


def _factor(builder: GraphBuilder, node: fx.Node, of: fx.Node | None = None) -> np.ndarray | None:
    """The constant, of the neuron shape, by which `node` multiplies `of` (or anything)."""
    if node.target is not torch.mul or (of is not None and node.args[0] is not of):
        return None
    source = node.args[0]
    if not isinstance(source, fx.Node) or builder.shape(source) != builder.shape(node):
        return None
    return _constant(builder, node.args[1], node)


def _constant(builder: GraphBuilder, node: object, like: fx.Node) -> np.ndarray | None:
    """The buffer behind `node`, broadcast to the neuron shape of `like`."""
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    array = builder.root.get_buffer(str(node.target)).numpy()
    shape = builder.shape(like)[1:]
    try:
        return np.array(np.broadcast_to(array, (1, *shape))[0])
    except ValueError:
        return None


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _zero_rows(layer: nn.Linear) -> torch.Tensor:
    """Which outputs are always 0: (outputs,), bool."""
    zero = (layer.weight == 0).all(1)
    return zero if layer.bias is None else zero & (layer.bias == 0)
