"""Does a certificate prove its claim? Everything is derived again from the network and the certificate alone.

For every margin f of the claim, f(x) > 0 on the whole region is shown, in real arithmetic, in one of three ways:

- by the default bounds, for which nothing is in the file: intervals or CROWN;
- by cuts of the region into boxes, on each of which its default bounds show it (`boxes.py`);
- by contradiction, with a tree. Suppose that f(x) ≤ 0 somewhere. For those x, rounds tighten the bounds of taps: ±z is
  at least ±z + γ·f(x) for any γ ≥ 0, which is bounded as a linear function. The tree splits the region at z ≥ 0 and
  z ≤ 0, which together are everything. In each leaf either the bounds of a tap cross, so no x is left, or the lower
  bound of f is above 0, which no x with f(x) ≤ 0 can satisfy.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lingraft.checker.bounds import Bounds
from lingraft.checker.boxes import check_boxes
from lingraft.checker.budget import STEP, TAPS_PER_BYTE, Budget
from lingraft.checker.collapse import collapse
from lingraft.checker.format import BoxTree, Certificate, Rejected, read
from lingraft.checker.network import Network, inner, inner_places
from lingraft.checker.nodes import Site
from lingraft.checker.rounding import Array, down, up
from lingraft.checker.rows import Integers
from lingraft.checker.runtime import Runtime, compare
from lingraft.checker.tree import check_tree
from lingraft.errors import LingraftError


@dataclass
class Report:
    """Whether the claim is proven, else why not."""

    accepted: bool
    reason: str
    seconds: float
    certificate: Certificate | None = None
    #: points of the region at which the program that runs the network was seen to agree with it
    points: int = 0


def check_file(path: str | Path, network: Network, runtime: Runtime | None = None) -> Report:
    """Check one file against a network; never raises for what is in the file, or for a file that cannot be read.

    With a `runtime` of the same file, the network must also be what that computes.
    """
    started, certificate, points = time.perf_counter(), None, 0
    try:
        certificate = read(path)
        check(certificate, network)
        if runtime is not None:
            points = _compare(certificate, network, runtime)
    except Rejected as error:
        return Report(False, str(error) or "it is rejected", time.perf_counter() - started, certificate)
    return Report(True, "", time.perf_counter() - started, certificate, points)


def _compare(certificate: Certificate, network: Network, runtime: Runtime) -> int:
    """The number of points at which the network was compared with what runs; a difference is a rejection."""
    # with groups of constraints, `question` is about a larger network
    spec = question(certificate, network)[1] if certificate.constraints is None else certificate.constraints[0]
    with _rejecting(), np.errstate(all="ignore"):
        return compare(network, runtime, *region(certificate, network), spec)


@contextmanager
def _rejecting() -> Iterator[None]:
    """Whatever goes wrong inside is a rejection: nothing is proven by a check that failed."""
    try:
        yield
    except Rejected:
        raise
    except MemoryError as error:
        raise Rejected("there is not enough memory to check it") from error
    except LingraftError as error:
        raise Rejected(str(error)) from error
    except Exception as error:
        what = f"{type(error).__name__}: {str(error)[:200]}"
        raise Rejected(f"the check failed ({what}), which is a mistake in lingraft; please report it") from error


def check(certificate: Certificate, network: Network) -> None:
    """Return if the certificate proves its claim; raise Rejected, with the reason, if not."""
    if certificate.model != network.sha256:
        raise Rejected(f"it is about another model: {certificate.model[:16]}…, not {network.sha256[:16]}…")
    with _rejecting(), np.errstate(all="ignore"):  # overflow and NaN end in a bound that proves nothing
        _check(certificate, network, Budget.of(network, certificate.size))


def _check(certificate: Certificate, network: Network, budget: Budget) -> None:
    _pay(certificate, network, budget)
    file, (network, spec, offset) = network, question(certificate, network)
    proven = [tree.margin for tree in certificate.trees]
    if certificate.boxes is not None:
        proven += certificate.boxes.margins.tolist()
    if len(set(proven)) != len(proven) or not set(proven) <= set(range(len(offset))):
        raise Rejected("trees for margins that do not exist, or two for one")
    if certificate.boxes is not None:
        _check_boxes(certificate, certificate.boxes, file, budget)
    default = [i for i in range(len(offset)) if i not in set(proven)]
    if not default and not certificate.trees:
        return
    bounds = Bounds(network, *region(certificate, network), budget)
    if default:
        lowest = bounds.margins(spec[default], offset[default])
        for i, value in zip(default, lowest, strict=True):
            if not 0 < value < np.inf:
                raise Rejected(f"margin {i} is not proven: its default bound is {value:.6g}")
    if certificate.trees:
        named = _named(certificate, network)
        which = [tree.margin for tree in certificate.trees]
        collapsed = collapse(bounds, {i: index for i, index, _ in named}, spec[which], offset[which])
        one = (collapsed.work(1) - collapsed.work(0)) / max(1, collapsed.count)
        budget.allow(TAPS_PER_BYTE * certificate.size * one)
        numbers = [collapsed.numbers[i].reshape(-1)[index] - 1 for i, index, _ in named]
        order = np.empty(certificate.count, np.int64)
        for (_, _, places), taps in zip(named, numbers, strict=True):
            order[places] = taps
        pixels = inner_places(network.shape)
        for i, tree in enumerate(certificate.trees):
            check_tree(collapsed, order, pixels, i, tree)


def _check_boxes(certificate: Certificate, tree: BoxTree, network: Network, budget: Budget) -> None:
    """Return if the margins of a tree of boxes are proven; groups of constraints need no larger network here."""
    if certificate.constraints is None:
        _, spec, offset = question(certificate, network)
    else:
        spec, offset = certificate.constraints
    groups = spec.reshape(-1, certificate.group, network.outputs), offset.reshape(-1, certificate.group)
    asked = groups[0][tree.margins], groups[1][tree.margins]
    box = region(certificate, network)
    check_boxes(network, box, asked, inner_places(network.shape), tree, certificate.size, budget)


def _pay(certificate: Certificate, network: Network, budget: Budget) -> None:
    """For what the claim says: its margins, and groups of constraints, which become nodes of the network."""
    budget.hold(certificate.arrays)
    group, count = certificate.group, network.outputs
    if certificate.constraints is not None:
        count = len(certificate.constraints[1])
    budget.hold(16 * count * network.outputs)
    if group > 1:  # as many nodes, each of which is passed by the rows of all others
        budget.work(group * (group * STEP + 200 * count))
        budget.hold(16 * (count // group) ** 2)


def question(certificate: Certificate, network: Network) -> tuple[Network, Array, Array]:
    """The network, spec (L, outputs) and offset (L,) such that the claim is spec·y + offset > 0."""
    if certificate.label is not None:
        if certificate.group != 1:
            raise Rejected(f"groups of {certificate.group} margins of a label, all of which must hold")
        if certificate.label >= network.outputs or network.outputs < 2:
            raise Rejected(f"label {certificate.label} of a network with {network.outputs} outputs")
        spec = -np.delete(np.eye(network.outputs), certificate.label, axis=0)
        spec[:, certificate.label] = 1
        return network, spec, np.zeros(len(spec))
    assert certificate.constraints is not None
    spec, offset = certificate.constraints
    group, count = certificate.group, len(offset)
    if spec.shape != (count, network.outputs) or not count or group < 1 or count % group:
        raise Rejected(f"constraints of shape {spec.shape}, {group} a group, for {network.outputs} outputs")
    if group == 1:
        return network, spec, offset
    return network.with_largest(spec, offset, group), np.eye(count // group), np.zeros(count // group)


def region(certificate: Certificate, network: Network) -> tuple[Array, Array]:
    """A box that holds the region: lower and upper, in the inner order."""
    if certificate.image is not None:
        assert certificate.eps is not None
        image = certificate.image.astype(np.float64)
        low, high = down(image - certificate.eps), up(image + certificate.eps)
        if certificate.clip is not None:
            low, high = np.maximum(low, certificate.clip[0]), np.minimum(high, certificate.clip[1])
    else:
        assert certificate.lower is not None
        assert certificate.upper is not None
        low, high = certificate.lower, certificate.upper
    if low.shape != network.shape or high.shape != network.shape:
        raise Rejected(f"a region of shape {low.shape}, but the network takes {network.shape}")
    if not (low <= high).all():
        raise Rejected("the region is empty, so the claim says nothing")
    return inner(low).copy(), inner(high).copy()


def _named(certificate: Certificate, network: Network) -> list[tuple[int, Integers, slice]]:
    """For each activation with named taps: its node, their inner indices, and their places in the certificate."""
    found, first, sites = [], 0, network.sites
    for number, index in certificate.taps.items():
        if number not in sites:
            raise Rejected(f"activation {number} does not exist or bends nothing")
        site = network.nodes[sites[number]]
        assert isinstance(site, Site)
        if len(index) and not (index.min() >= 0 and index.max() < site.size and len(np.unique(index)) == len(index)):
            raise Rejected(f"the taps of activation {number} do not exist")
        shape = (site.shape[2], *site.shape[:2]) if len(site.shape) == 3 else site.shape
        found.append((sites[number], inner_places(shape)[index], slice(first, first + len(index))))
        first += len(index)
    return found
