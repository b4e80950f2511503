"""From a proof that the verifier kept to a certificate about an ONNX file, which `lingraft check` understands."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from lingraft.ball import Range
from lingraft.checker.format import (
    CLIPPED,
    DONE,
    EMPTY,
    LEAF,
    PARTS,
    SLOPES,
    TYPES,
    BoxTree,
    Certificate,
    Tree,
    tree_of,
)
from lingraft.checker.network import Network as CheckedNetwork
from lingraft.checker.network import inner_places
from lingraft.errors import LingraftError
from lingraft.solver.clip import GRID
from lingraft.solver.network import Network
from lingraft.solver.proof import Bounded, BoundedBoxes, BoxProof, MarginProof, Round, Shares
from lingraft.solver.request import Request
from lingraft.solver.verifier import Result

Record = TypeVar("Record", Bounded, BoundedBoxes)


def claim_of_image(request: Request, i: int, about: Mapping[str, Any]) -> Certificate:
    """What is asked about image `i` of a request, as a claim without model and proof."""
    claim = Certificate("", about=dict(about))
    if request.constraints is None:
        assert request.labels is not None
        claim.label = request.labels[i]
    else:
        spec, offset = request.margins(i)
        claim.constraints = spec.numpy(), offset.numpy()
    clip = _numbers(request.clip)
    if isinstance(request.eps, float) and (clip is not None or request.clip is None):
        claim.image, claim.eps, claim.clip = request.images[i].numpy(), request.eps, clip
    else:  # of tensors, the box that they make
        region = request.region(i)
        claim.lower, claim.upper = region.lower.double().numpy(), region.upper.double().numpy()
    return claim


def _numbers(clip: Range) -> tuple[float, float] | None:
    """The range of values where it is two finite numbers."""
    if clip is None or not all(isinstance(end, float) and math.isfinite(end) for end in clip):
        return None
    return clip  # type: ignore[return-value]


class CertificateWriter:
    """Turns proofs about `network` into certificates about one ONNX file (`checked`, as the checker reads it)."""

    def __init__(self, network: Network, checked: CheckedNetwork):
        self.network, self.checked = network, checked
        #: number of the activation in the file, by position of the verifier's site
        self.numbers = _match_sites(network, checked)

    def certificate(self, claim: Certificate, result: Result) -> Certificate:
        """The claim with the proof of a verified result."""
        if result.proof is None:
            raise LingraftError(f"no certificate for this: the verifier kept no proof of it (stage {result.stage!r}).")
        taps: dict[int, np.ndarray] = {}
        for position, index in result.proof.sites:
            shape = self.network.nodes[position].shape
            places = np.argsort(inner_places((shape[2], *shape[:2]) if len(shape) == 3 else shape))
            if len(index):
                taps[self.numbers[position]] = places[_array(index)].astype(np.int32)
        count = sum(len(index) for index in taps.values())
        pixels = np.argsort(inner_places(self.checked.shape))
        trees = [_tree(margin, count, pixels) for margin in result.proof.margins]
        boxes = None if result.proof.boxes is None else tree_of_boxes(result.proof.boxes, claim.group, pixels)
        return replace(claim, model=self.checked.sha256, taps=taps if trees else {}, trees=trees, boxes=boxes)


def _match_sites(network: Network, checked: CheckedNetwork) -> dict[int, int]:
    """Sites in which anything bends come in the same order in both; fully grafted ones are not in the file."""
    ours = [i for i in network.sites if not bool(network.nodes[i].grafted.all())]  # type: ignore[attr-defined]
    theirs = sorted(checked.sites.items())
    sizes = [network.nodes[i].size for i in ours], [checked.nodes[i].size for _, i in theirs]
    if sizes[0] != sizes[1] or checked.outputs != network.nodes[-1].size:
        raise LingraftError(
            f"no certificates for this model: its activations, of sizes {sizes[0]}, are not those of the ONNX file,"
            f" {sizes[1]}."
        )
    return {i: number for i, (number, _) in zip(ours, theirs, strict=True)}


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _tree(proof: MarginProof, taps: int, pixels: np.ndarray) -> Tree:
    """The tree in preorder, with what belongs to its nodes in the same order; `pixels` are the file's numbers."""
    split: dict[int, tuple[int, int, int]] = {}
    for step in proof.splits:
        for i, (node, tap) in enumerate(zip(step.nodes.tolist(), step.taps.tolist(), strict=True)):
            split[node] = tap, step.first + i, step.first + len(step.nodes) + i
    leaves, clips = _by_node(proof.leaves), _by_node(proof.clips)
    empty = {node: in_force for nodes, in_force in proof.empty for node in nodes.tolist()}
    kinds, in_force, order, clipped = list[int](), list[int](), list[tuple[Bounded, int]](), list[tuple[int, int]]()
    waiting = [0]
    while waiting:
        node = waiting.pop()
        if node in clips:
            clipped.append((len(kinds), node))
        if node in split:
            tap, above, under = split[node]
            kinds.append(tap)
            waiting += [under, above]
        elif node in leaves:
            kinds.append(LEAF)
            in_force.append(leaves[node][0].in_force)
            order.append(leaves[node])
        else:
            kinds.append(EMPTY)
            in_force.append(empty[node])
    used = [clips[node] for _, node in clipped]
    parts = {
        "nodes": kinds,
        "in_force": in_force,
        **_multipliers("multipliers", order, proof.unit),
        **_facets(proof.facets, taps, pixels),
        **_rounds(proof.rounds, proof.unit),
        "clips.forms_in_force": [forms.in_force for forms in proof.forms],
        "clips.forms_alpha": [_array(forms.alpha) for forms in proof.forms],
        "clips.groups": [_array(forms.group) for forms in proof.forms],
        "clips.grid": list(GRID),
        "clips.nodes": [place for place, _ in clipped],
        "clips.in_force": [record.in_force for record, _ in used],
        "clips.forms": [record.forms for record, _ in used],  # type: ignore[attr-defined]
        **_multipliers("clips.multipliers", used, proof.unit),
    }
    arrays = {
        name: np.array(parts[name], np.dtype(TYPES[kind])).reshape((-1, taps) if rank == 2 else -1)
        for name, kind, rank in [*PARTS, SLOPES]
    }
    return tree_of(proof.margin, arrays)


def tree_of_boxes(proof: BoxProof, group: int, pixels: np.ndarray) -> BoxTree:
    """In preorder, and the shares of its nodes in the same order; `pixels` are the file's numbers of inputs."""
    cut: dict[int, tuple[int, float, int, int]] = {}
    for step in proof.cuts:  # a turn that came to its end may have left one that was made again
        columns = step.nodes.tolist(), pixels[_array(step.inputs)].tolist(), step.points.tolist()
        for i, (node, pixel, point) in enumerate(zip(*columns, strict=True)):
            cut[node] = pixel, point, step.first + i, step.first + len(step.nodes) + i
    done, clipped = _by_node(proof.done), _by_node(proof.clipped)
    kinds, points, order = list[int](), list[float](), list[tuple[BoundedBoxes, int]]()
    waiting = [0]
    while waiting:
        node = waiting.pop()
        if node in done:
            kinds.append(DONE)
            order.append(done[node])
            continue
        if node in clipped:
            kinds.append(CLIPPED)
            order.append(clipped[node])
        pixel, point, lower, upper = cut[node]
        kinds.append(pixel)
        points.append(point)
        waiting += [upper, lower]
    shares = np.zeros((len(order), len(proof.margins) * group if group > 1 else 0))
    if group > 1 and all(record.shares.shape[2] == group for record, _ in order):
        shares = np.stack([_array(record.shares[row]).reshape(-1) for record, row in order])
    return BoxTree(np.array(proof.margins, np.int32), np.array(kinds, np.int32), np.array(points, float), shares)


def _by_node(records: Sequence[Record]) -> dict[int, tuple[Record, int]]:
    """For each node, the record that it is in and its place there."""
    return {node: (record, i) for record in records for i, node in enumerate(record.nodes.tolist())}


def _multipliers(prefix: str, records: list[tuple[Bounded, int]], unit: float) -> dict[str, list[Any]]:
    """α of every domain, and its β that are not 0, of the margin itself."""
    alpha, sizes, taps, beta = [], [], list[int](), list[float]()
    for record, column in records:
        values = _array(record.beta[:, column]) / unit
        used = np.flatnonzero(values)
        alpha.append(_array(record.alpha[:, column]))
        sizes.append(len(used))
        taps += _array(record.rows)[used].tolist()
        beta += values[used].tolist()
    return {f"{prefix}.alpha": alpha, f"{prefix}.sizes": sizes, f"{prefix}.taps": taps, f"{prefix}.beta": beta}


def _facets(shares: Shares | None, taps: int, pixels: np.ndarray) -> dict[str, Any]:
    """Pixels and shares of each tap in turn."""
    if shares is None:
        return {"facets.sizes": [], "facets.pixels": [], "facets.share": [], "facets.slopes": []}
    tap = _array(shares.tap)
    order = np.argsort(tap, kind="stable")
    return {
        "facets.sizes": np.bincount(tap, minlength=taps),
        "facets.pixels": pixels[_array(shares.pixel)[order]],
        "facets.share": _array(shares.share)[order],
        "facets.slopes": _array(shares.slopes),
    }


def _rounds(rounds: list[Round], unit: float) -> dict[str, Any]:
    """Lower bounds of a round's taps come first, then upper bounds; γ of the margin itself."""
    none = np.zeros(0, np.int64)
    return {
        "rounds.sizes": [2 * len(r.taps) for r in rounds],
        "rounds.taps": np.concatenate([none, *[_array(r.taps) for r in rounds for _ in range(2)]]),
        "rounds.sides": np.concatenate([none, *[np.repeat([1, -1], len(r.taps)) for r in rounds]]),
        "rounds.gamma": np.concatenate([none, *[_array(r.gamma) * unit for r in rounds]]),
        "rounds.alpha": [row for r in rounds for row in _array(r.alpha).T],
    }
