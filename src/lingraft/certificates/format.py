"""The file format of certificates, version 2: a line of text, a JSON header, and compressed arrays.

    lingraft certificate 2\\n
    <length of the header in bytes, decimal>\\n
    <header: JSON, UTF-8>
    <the arrays, one after the other, each compressed by zlib>

docs/certificates.md has the whole description. What is read is checked for form here (sizes, types, finite numbers);
whether it proves anything is for `check.py`.
"""

import hashlib
import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from lingraft.errors import LingraftError

FIRST_LINE = b"lingraft certificate 2\n"

#: Limits for files of unknown origin: the header, and all arrays together.
MAX_HEADER, MAX_BYTES = 1 << 20, 1 << 30

TYPES = {"u1": "|u1", "i1": "|i1", "i4": "<i4", "f4": "<f4", "f8": "<f8"}

#: Leaves in the list of a tree's nodes: with multipliers, and without a point of the region.
LEAF, EMPTY = -1, -2


#: The arrays of a tree: name, type and rank. Slopes (u1) are stored as differences of neighbouring rows.
PARTS = [
    ("nodes", "i4", 1), ("in_force", "i4", 1),
    ("multipliers.alpha", "u1", 2), ("multipliers.sizes", "i4", 1),
    ("multipliers.taps", "i4", 1), ("multipliers.beta", "f4", 1),
    ("facets.sizes", "i4", 1), ("facets.pixels", "i4", 1), ("facets.share", "i1", 1),
    ("rounds.sizes", "i4", 1), ("rounds.taps", "i4", 1), ("rounds.sides", "i1", 1), ("rounds.gamma", "f4", 1),
    ("rounds.alpha", "u1", 2),
    ("clips.forms_in_force", "i4", 1), ("clips.forms_alpha", "u1", 2), ("clips.groups", "i4", 2),
    ("clips.grid", "f4", 1), ("clips.nodes", "i4", 1), ("clips.in_force", "i4", 1), ("clips.forms", "i4", 1),
    ("clips.multipliers.alpha", "u1", 2), ("clips.multipliers.sizes", "i4", 1),
    ("clips.multipliers.taps", "i4", 1), ("clips.multipliers.beta", "f4", 1),
]  # fmt: skip


class Rejected(LingraftError):
    """A certificate that does not prove its claim; the message says why."""


@dataclass
class FacetShares:
    """Facets of the first site's taps: how many entries each tap has (T,), or nothing; their pixels and shares."""

    sizes: np.ndarray
    pixels: np.ndarray
    share: np.ndarray


@dataclass
class Rounds:
    """Tightening of the bounds of taps, round after round; K is their number in all, T the number of taps.

    sizes: how many belong to each round. taps, sides (K,): +1 tightens the lower bound, −1 the upper one. gamma (K,):
    the multiplier of the margin. alpha (K, T): slopes in 1/255.
    """

    sizes: np.ndarray
    taps: np.ndarray
    sides: np.ndarray
    gamma: np.ndarray
    alpha: np.ndarray


@dataclass
class Multipliers:
    """For M domains: alpha (M, T), slopes in 1/255; in turn `sizes` (M,) multipliers `beta` at taps `taps`."""

    alpha: np.ndarray
    sizes: np.ndarray
    taps: np.ndarray
    beta: np.ndarray


@dataclass
class Clips:
    """Tightening of the bounds at single nodes of a tree.

    forms_in_force (F,): rounds that forms use; forms_alpha (F, T): their slopes; groups (F, T): taps of the same number
    ≥ 0 are clipped together. grid: values of γ that are tried, in units. nodes (C,): clipped nodes, by place in the
    tree; in_force, forms (C,): rounds and forms that each uses; and the multipliers that bound the margin there.
    """

    forms_in_force: np.ndarray
    forms_alpha: np.ndarray
    groups: np.ndarray
    grid: np.ndarray
    nodes: np.ndarray
    in_force: np.ndarray
    forms: np.ndarray
    multipliers: Multipliers


@dataclass
class Tree:
    """The proof of one margin by splits.

    nodes (N,): in preorder, the tap that is split (then come the nodes of the side z ≥ 0, then of z ≤ 0), LEAF or
    EMPTY. in_force (leaves,): how many rounds each leaf uses, both kinds of leaves. multipliers: of each LEAF.
    """

    margin: int
    nodes: np.ndarray
    in_force: np.ndarray
    multipliers: Multipliers
    facets: FacetShares
    rounds: Rounds
    clips: Clips


@dataclass
class Certificate:
    """What is claimed and why.

    The region is the box from `lower` to `upper`, or the ball of radius `eps` around `image`, cut to `clip` if given;
    arrays of the network's input shape. The claim is that the outputs y of the network whose file has the hash `model`
    satisfy constraints[0]·y + constraints[1] > 0 there, in one row at least of every `group` rows, or, with a `label`,
    that this output exceeds all others.
    `taps` names neurons by the number of their activation in the file and their flat index in it. `about` is not
    part of the claim.
    """

    model: str
    label: int | None = None
    constraints: tuple[np.ndarray, np.ndarray] | None = None
    group: int = 1
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None
    image: np.ndarray | None = None
    eps: float | None = None
    clip: tuple[float, float] | None = None
    taps: dict[int, np.ndarray] = field(default_factory=dict)
    trees: list[Tree] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of taps that are named."""
        return sum(len(index) for index in self.taps.values())

    def claim(self) -> str:
        """What is claimed, in words."""
        if self.image is not None:
            clip = "" if self.clip is None else f", cut to [{self.clip[0]:g}, {self.clip[1]:g}],"
            where = f"within {self.eps:.6g} of the image {image_hash(self.image)[:16]}…{clip}"
        else:
            where = "in the box of the certificate"
        if self.label is not None:
            return f"output {self.label} is the largest {where}"
        assert self.constraints is not None
        each = "" if self.group == 1 else f", each one of {self.group}"
        return f"{len(self.constraints[1]) // self.group} constraints{each}, hold {where}"

    @property
    def leaves(self) -> int:
        """Number of leaves of all trees."""
        return sum(len(tree.in_force) for tree in self.trees)


def image_hash(image: np.ndarray) -> str:
    """SHA-256 of the pixels, as float32 or float64 numbers, little endian, in the order of the network's input."""
    return hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()


def encode(certificate: Certificate) -> bytes:
    """The content of the file."""
    arrays: list[tuple[str, str, np.ndarray]] = []

    def add(name: str, kind: str, array: Any) -> None:
        arrays.append((name, kind, np.ascontiguousarray(array, dtype=TYPES[kind])))

    region: dict[str, Any]
    if certificate.image is not None:
        region = {"eps": certificate.eps, "clip": certificate.clip, "image_sha256": image_hash(certificate.image)}
        add("image", "f4" if certificate.image.dtype == np.float32 else "f8", certificate.image)
    else:
        region = {}
        add("lower", "f8", certificate.lower)
        add("upper", "f8", certificate.upper)
    if certificate.constraints is not None:
        add("constraints", "f8", certificate.constraints[0])
        add("offsets", "f8", certificate.constraints[1])
    add("taps", "i4", np.concatenate([np.zeros(0, np.int32), *certificate.taps.values()]))
    for i, tree in enumerate(certificate.trees):
        for name, kind, _ in PARTS:
            array = attrgetter(name)(tree)
            add(f"{i}.{name}", kind, _differences(array) if kind == "u1" else array)
    packed = [zlib.compress(array.tobytes(), 9) for _, _, array in arrays]
    header = {
        "model_sha256": certificate.model,
        "label": certificate.label,
        "group": certificate.group,
        "region": region,
        "sites": [[number, len(index)] for number, index in certificate.taps.items()],
        "trees": [tree.margin for tree in certificate.trees],
        "about": certificate.about,
        "arrays": [
            {"name": name, "type": kind, "shape": list(array.shape), "bytes": len(data)}
            for (name, kind, array), data in zip(arrays, packed, strict=True)
        ],
    }
    text = json.dumps(header, allow_nan=False).encode()
    return b"".join([FIRST_LINE, b"%d\n" % len(text), text, *packed])


def _differences(alpha: np.ndarray) -> np.ndarray:
    """Each row minus the one before, modulo 256: neighbours are alike, so this is mostly zeros."""
    result = np.array(alpha, dtype=np.uint8)
    result[1:] -= alpha[:-1]
    return result


def read(path: str | Path) -> Certificate:
    """Read a certificate file; one that is not well formed is rejected."""
    try:
        if Path(path).stat().st_size > MAX_BYTES:
            raise Rejected(f"the file is larger than {MAX_BYTES:,} bytes")
        return decode(Path(path).read_bytes())
    except OSError as error:
        raise LingraftError(f"cannot read {path}: {error.strerror}. Check the path.") from error


def decode(data: bytes) -> Certificate:
    """The certificate in the content of a file."""
    try:
        return _Decoder(data).certificate()
    except Rejected:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, zlib.error) as error:
        raise Rejected(f"the file is damaged ({type(error).__name__}: {error})") from error


class _Decoder:
    def __init__(self, data: bytes):
        if not data.startswith(FIRST_LINE):
            raise Rejected("the file is not a lingraft certificate of version 2")
        end = data.index(b"\n", len(FIRST_LINE), len(FIRST_LINE) + 20)
        length = int(data[len(FIRST_LINE) : end])
        if not 0 < length <= min(MAX_HEADER, len(data)):
            raise Rejected("the header has an impossible length")
        start = end + 1 + length
        self.header: dict[str, Any] = json.loads(data[end + 1 : start], object_pairs_hook=_unique)
        self.arrays = dict(self._arrays(data, start))

    def _arrays(self, data: bytes, start: int) -> Iterator[tuple[str, np.ndarray]]:
        total = 0
        names = set()
        for entry in self.header["arrays"]:
            shape, packed, kind = [_whole(n) for n in entry["shape"]], _whole(entry["bytes"]), TYPES[entry["type"]]
            size = math.prod(shape) * np.dtype(kind).itemsize
            total += size
            if total > MAX_BYTES or entry["name"] in names:
                raise Rejected("the arrays are too large or not unique")
            names.add(entry["name"])
            unpacker = zlib.decompressobj()
            content = unpacker.decompress(data[start : start + packed], size + 1)
            if len(content) != size or not unpacker.eof or unpacker.unused_data:
                raise Rejected(f"the array {entry['name']!r} is damaged")
            array = np.frombuffer(content, kind).reshape(shape)
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise Rejected(f"the array {entry['name']!r} holds NaN or infinity")
            yield entry["name"], array
            start += packed
        if start != len(data):
            raise Rejected("the file has a wrong length")

    def _take(self, name: str, kind: str, rank: int) -> np.ndarray:
        array = self.arrays.pop(name)
        if array.dtype.str != TYPES[kind] or (rank >= 0 and array.ndim != rank):
            raise Rejected(f"the array {name!r} has a wrong type or shape")
        return array

    def certificate(self) -> Certificate:
        header = self.header
        model, label, region, about = (header[name] for name in ("model_sha256", "label", "region", "about"))
        if not isinstance(model, str) or not isinstance(about, dict):
            raise Rejected("the header is damaged")
        result = Certificate(model, None if label is None else _whole(label), about=about)
        if "image" in self.arrays:
            result.image = self._take("image", "f4" if self.arrays["image"].itemsize == 4 else "f8", -1)
            result.eps = _number(region["eps"])
            clip = region["clip"]
            result.clip = None if clip is None else (_number(clip[0]), _number(clip[1]))
            if image_hash(result.image) != region["image_sha256"]:
                raise Rejected("the image is not the one whose hash is given")
        else:
            result.lower, result.upper = self._take("lower", "f8", -1), self._take("upper", "f8", -1)
        if label is None:
            result.constraints = self._take("constraints", "f8", 2), self._take("offsets", "f8", 1)
            result.group = _whole(header["group"])
            if not result.group:
                raise Rejected("groups of no constraints")
        taps = self._take("taps", "i4", 1)
        numbers, sizes = [_whole(n) for n, _ in header["sites"]], [_whole(size) for _, size in header["sites"]]
        if len(set(numbers)) != len(numbers) or sum(sizes) != len(taps):
            raise Rejected("the list of taps is damaged")
        result.taps = dict(zip(numbers, np.split(taps, np.cumsum(sizes)[:-1]), strict=True)) if sizes else {}
        result.trees = [self._tree(i, _whole(margin), len(taps)) for i, margin in enumerate(header["trees"])]
        if self.arrays:
            raise Rejected(f"the array {next(iter(self.arrays))!r} does not belong here")
        return result

    def _tree(self, i: int, margin: int, taps: int) -> Tree:
        parts = {}
        for name, kind, rank in PARTS:
            array = self._take(f"{i}.{name}", kind, rank)
            if rank == 2 and array.shape[1] != taps:
                raise Rejected(f"the array {name!r} is not about {taps} taps")
            parts[name] = np.cumsum(array, axis=0, dtype=np.uint8) if kind == "u1" else array
        tree = tree_of(margin, parts)
        for lengths in (
            {len(tree.rounds.taps), len(tree.rounds.sides), len(tree.rounds.gamma), len(tree.rounds.alpha)},
            {len(tree.clips.forms_in_force), len(tree.clips.forms_alpha), len(tree.clips.groups)},
            {len(tree.clips.nodes), len(tree.clips.in_force), len(tree.clips.forms), len(tree.clips.multipliers.alpha)},
        ):
            if len(lengths) != 1:
                raise Rejected("the parts of a tree do not fit together")
        return tree


def tree_of(margin: int, parts: dict[str, np.ndarray]) -> Tree:
    """The tree that has these parts, by the names of PARTS."""

    def of(prefix: str) -> dict[str, np.ndarray]:
        found = {name.removeprefix(prefix): array for name, array in parts.items() if name.startswith(prefix)}
        return {name: array for name, array in found.items() if "." not in name}

    clips = Clips(**of("clips."), multipliers=Multipliers(**of("clips.multipliers.")))
    return Tree(
        margin,
        **of(""),
        multipliers=Multipliers(**of("multipliers.")),
        facets=FacetShares(**of("facets.")),
        rounds=Rounds(**of("rounds.")),
        clips=clips,
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise Rejected("the header says something twice")
    return dict(pairs)


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 40:
        raise Rejected(f"{value!r} is not a number that counts")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise Rejected(f"{value!r} is not a finite number")
    return float(value)
