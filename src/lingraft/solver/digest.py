"""Digests of what a verdict is about: the network as the verifier converted it, and the question about one image.

Weights alone do not say what a network computes: a number in its code, a slope, a buffer that is not saved, or other
code under the same name change it too. The converted network says it all, since it is what is verified.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from lingraft.solver.nodes import Node
from lingraft.solver.verifier import Problem

#: Raise it when verdicts of earlier versions must not be used again, whatever they are about.
EDITION = 1

#: Characters of the digest of a question that tell files apart that would have the same name.
SHORT = 12


def digest_network(nodes: Sequence[Node]) -> str:
    """Changes with every node's kind, wiring, shape and constants; not with the names of layers."""
    digest = _start("network")
    for node in nodes:
        _add(digest, type(node).__name__)
        for field in fields(node):
            if field.name != "name" and field.metadata.get("digest", True):
                _add(digest, field.name)
                _add(digest, getattr(node, field.name))
    return digest.hexdigest()


def digest_question(network: str, problem: Problem) -> str:
    """Changes with the digest of the network, the image, the region around it and the margins to prove."""
    digest = _start("question")
    for part in (
        network, problem.image, problem.region.lower, problem.region.upper, problem.spec, problem.offset
    ):  # fmt: skip
        _add(digest, part)
    return digest.hexdigest()


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
