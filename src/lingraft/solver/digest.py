"""Digests of what a verdict is about: the network as the verifier converted it, and the question about one image.

Weights alone do not say what a network computes: a number in its code, a slope, a buffer that is not saved, or other
code under the same name change it too. The converted network says it all, since it is what is verified; but for
activations that were registered from outside, of which it has the name, and whose code may be another one tomorrow.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from lingraft.model.activations import Activation, is_own
from lingraft.model.activations.record import PLACES
from lingraft.solver.nodes import Node, Site
from lingraft.solver.verifier import Problem

#: Raise it when verdicts of earlier versions must not be used again, whatever they are about.
EDITION = 1

#: Characters of the digest of a question that tell files apart that would have the same name.
SHORT = 12


def digest_network(nodes: Sequence[Node]) -> str:
    """Changes with every node's kind, wiring, shape and constants; not with the names of layers.

    Activations of lingraft's own are told apart by name and arguments: `EDITION` is for changes of these. Those that
    were registered are told apart by what they give on a grid as well, see `_add_effect`.
    """
    digest = _start("network")
    for node in nodes:
        _add(digest, type(node).__name__)
        for field in fields(node):
            if field.name != "name" and field.metadata.get("digest", True):
                _add(digest, field.name)
                _add(digest, getattr(node, field.name))
        if isinstance(node, Site) and not is_own(node.kind):
            _add_effect(digest, node.activation)
    return digest.hexdigest()


def digest_question(network: str, problem: Problem) -> str:
    """Changes with the digest of the network, the image, the region around it and the margins to prove."""
    digest = _start("question")
    for part in (
        network, problem.image, problem.region.lower, problem.region.upper, problem.spec, problem.offset
    ):  # fmt: skip
        _add(digest, part)
    return digest.hexdigest()


def _add_effect(digest: "hashlib._Hash", record: Activation) -> None:
    """Add what the functions of a record give on a fixed grid: values, lines, bounds and sizes, from tiny to huge.

    A grid does not see everything: two versions that differ only between its points, only beyond 1e9, or only in
    functions that nothing proven depends on (the gap) have the same digest. On the other hand the last bits of a
    function may differ from one machine or version of torch to the other, and then verdicts are found again.
    """
    even = torch.linspace(-20.3, 20.7, 165, dtype=torch.float64)
    sizes = torch.logspace(-12, 9, 85, dtype=torch.float64)
    points = torch.cat([-sizes, torch.zeros(1, dtype=torch.float64), sizes, even]).sort().values
    steps = [(points[:-step], points[step:]) for step in (1, 7, 60)]  # short intervals, longer ones, most of a side
    ends = [*steps, (points, points), (-sizes, sizes), (-sizes, sizes.flip(0))]
    lower, upper = (torch.cat(side) for side in zip(*ends, strict=True))
    with torch.no_grad():
        found = [record.value(points), *record.lines(lower, upper), *record.between(lower, upper)]
        if record.lines_at is not None:
            for place in PLACES:
                found += record.lines_at(lower, upper, torch.tensor(place).to(lower))
    _add(digest, "effect")
    _add(digest, found)
    _add(digest, [float(record.size(size)) for size in sizes.tolist()])


def _start(what: str) -> "hashlib._Hash":
    return hashlib.sha256(f"lingraft {what} {EDITION};".encode())


def _add(digest: "hashlib._Hash", value: Any) -> None:
    """Add a value so that no two different sequences of values add the same bytes: each with its type and length."""
    if isinstance(value, Tensor):
        # float32 numbers are float64 numbers: a network or image is the same in either precision
        plain = value.detach().cpu().to(torch.float64 if value.is_floating_point() else torch.int64).contiguous()
        kind = "floats" if value.is_floating_point() else "integers"
        digest.update(f"{kind}{tuple(plain.shape)}:".encode())
        digest.update(plain.numpy().data)
    elif isinstance(value, list | tuple):
        digest.update(f"list {len(value)}:".encode())
        for item in value:
            _add(digest, item)
    elif isinstance(value, str | bool | int | float):
        text = value.hex() if isinstance(value, float) else str(value)
        digest.update(f"{type(value).__name__} {len(text)}:{text};".encode())
    else:
        raise AssertionError(f"a node holds {type(value).__name__}, of which there is no digest")
