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
import re
import reprlib
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from lingraft.checker.regular_file import read_regular
from lingraft.errors import LingraftError

FIRST_LINE = b"lingraft certificate 2\n"

#: Limits for files of unknown origin: the file, its header, and all arrays together.
MAX_FILE, MAX_HEADER, MAX_BYTES = 1 << 28, 1 << 20, 1 << 29

#: What a byte of the file may unpack to, and what any file may. Real ones unpack to ten times their size.
UNPACKED, ALWAYS_UNPACKED = 150, 1 << 24

#: Dimensions of an array at most; inputs of networks have three or fewer.
MAX_RANK = 8

TYPES = {"u1": "|u1", "i1": "|i1", "i4": "<i4", "f4": "<f4", "f8": "<f8"}

#: Leaves in the list of a tree's nodes: with multipliers, and without a point of the region.
LEAF, EMPTY = -1, -2

#: In the list of nodes of a tree of boxes: one that is proven, and one of which a part is clipped off.
DONE, CLIPPED = -1, -2

#: The arrays of a claim: name, types and rank (None: any).
CLAIM: dict[str, tuple[tuple[str, ...], int | None]] = {
    "image": (("f4", "f8"), None), "lower": (("f8",), None), "upper": (("f8",), None),
    "constraints": (("f8",), 2), "offsets": (("f8",), 1), "taps": (("i4",), 1),
}  # fmt: skip

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

#: The array of a tree that is there only if facets need it, and its type and rank.
SLOPES = ("facets.slopes", "u1", 2)

#: The arrays of a tree of boxes, which need not be there: name, type and rank.
BOXES = [("boxes.margins", "i4", 1), ("boxes.nodes", "i4", 1), ("boxes.points", "f8", 1), ("boxes.shares", "f8", 2)]


class Rejected(LingraftError):
    """A certificate that does not prove its claim; the message says why."""


@dataclass
class FacetShares:
    """Facets of taps: how many entries each tap has (T,), or nothing; their pixels and shares.

    slopes (1, T), in 1/255, are below the taps in the functions that facets behind the first site are shares of; there
    is no row where there are no such facets.
    """

    sizes: np.ndarray
    pixels: np.ndarray
    share: np.ndarray
    slopes: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.uint8))


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
class BoxTree:
    """The proof of several margins by cuts of the region.

    margins (L,): which ones. nodes (N,): in preorder, the input that is cut (then come the nodes of x ≤ point, then
    those of x ≥ point), CLIPPED (then comes what is left of the box), or DONE. points: of each cut. shares (DONE and
    CLIPPED nodes, L·K): for each margin, the shares of its K constraints where these form groups; else (…, 0).
    """

    margins: np.ndarray
    nodes: np.ndarray
    points: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True)
class Part:
    """Which box (1 is the first) of a property in VNN-LIB this is, as whoever wrote the certificate says."""

    property_sha256: str
    box: int
    boxes: int


@dataclass
class Certificate:
    """What is claimed and why.

    The region is the box from `lower` to `upper`, or the ball of radius `eps` around `image`, cut to `clip` if given;
    arrays of the network's input shape. The claim is that the outputs y of the network whose file has the hash `model`
    satisfy constraints[0]·y + constraints[1] > 0 there, in one row at least of every `group` rows, or, with a `label`,
    that this output exceeds all others.
    `taps` names neurons by the number of their activation in the file and their flat index in it. `part` and `about`
    are not part of the claim. `size` is how many bytes the file has; without a file, its arrays.
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
    boxes: BoxTree | None = None
    about: dict[str, Any] = field(default_factory=dict)
    part: Part | None = None
    packed: int | None = None

    @property
    def count(self) -> int:
        """Number of taps that are named."""
        return sum(len(index) for index in self.taps.values())

    @property
    def arrays(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for _, _, array in _arrays_of(self))

    @property
    def size(self) -> int:
        """Bytes of the file, or of what would be in one."""
        return self.arrays if self.packed is None else self.packed

    @property
    def leaves(self) -> int:
        """Number of leaves of all trees."""
        boxes = 0 if self.boxes is None else int((self.boxes.nodes == DONE).sum())
        return boxes + sum(len(tree.in_force) for tree in self.trees)


def image_hash(image: np.ndarray) -> str:
    """SHA-256 of the pixels, as float32 or float64 numbers, little endian, in the order of the network's input."""
    return hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()


def box_hash(lower: np.ndarray, upper: np.ndarray) -> str:
    """SHA-256 of the lower bounds followed by the upper ones, as float64 numbers, little endian, in the same order."""
    return hashlib.sha256(lower.astype("<f8").tobytes() + upper.astype("<f8").tobytes()).hexdigest()


def _arrays_of(certificate: Certificate) -> list[tuple[str, str, np.ndarray]]:
    """Name, type and content of everything that is stored as an array, before slopes become differences."""
    found: list[tuple[str, str, Any]] = []
    if certificate.image is not None:
        found.append(("image", "f4" if certificate.image.dtype == np.float32 else "f8", certificate.image))
    else:
        found += [("lower", "f8", certificate.lower), ("upper", "f8", certificate.upper)]
    if certificate.constraints is not None:
        found += [("constraints", "f8", certificate.constraints[0]), ("offsets", "f8", certificate.constraints[1])]
    found.append(("taps", "i4", np.concatenate([np.zeros(0, np.int32), *certificate.taps.values()])))
    for i, tree in enumerate(certificate.trees):
        parts = [*PARTS, SLOPES] if len(tree.facets.slopes) else PARTS
        found += [(f"{i}.{name}", kind, attrgetter(name)(tree)) for name, kind, _ in parts]
    if certificate.boxes is not None:
        found += [(name, kind, attrgetter(name)(certificate)) for name, kind, _ in BOXES]
    return [(name, kind, np.ascontiguousarray(array, dtype=TYPES[kind])) for name, kind, array in found]


def encode(certificate: Certificate) -> bytes:
    """The content of the file."""
    region: dict[str, Any] = {}
    if certificate.image is not None:
        region = {"eps": certificate.eps, "clip": certificate.clip, "image_sha256": image_hash(certificate.image)}
    arrays = [
        (name, kind, _differences(array) if kind == "u1" else array) for name, kind, array in _arrays_of(certificate)
    ]
    packed = [zlib.compress(array.tobytes(), 9) for _, _, array in arrays]
    header = {
        "model_sha256": certificate.model,
        "label": certificate.label,
        "group": certificate.group,
        "region": region,
        "sites": [[number, len(index)] for number, index in certificate.taps.items()],
        "trees": [tree.margin for tree in certificate.trees],
        "about": certificate.about,
        **({} if certificate.part is None else {"part": vars(certificate.part)}),
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
    """Read a certificate file; one that cannot be read or is not well formed is rejected."""
    try:
        content = read_regular(path, MAX_FILE)
    except OSError as error:
        raise Rejected(f"it cannot be read: {error.strerror}") from error
    except ValueError as error:  # a name that no file can have
        raise Rejected(f"it cannot be read: {error}") from error
    except MemoryError as error:
        raise Rejected("there is not enough memory to read it") from error
    return decode(content)


def decode(data: bytes) -> Certificate:
    """The certificate in the content of a file."""
    try:
        return _Decoder(data).certificate()
    except Rejected:
        raise
    except MemoryError as error:
        raise Rejected("there is not enough memory to read it") from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, zlib.error) as error:
        raise Rejected(f"the file is damaged ({type(error).__name__}: {str(error)[:200]})") from error


@dataclass
class _Entry:
    """An array that is still packed: its type, shape and where it lies in the file."""

    kind: str
    shape: list[int]
    first: int
    last: int

    @property
    def size(self) -> int:
        return math.prod(self.shape) * np.dtype(TYPES[self.kind]).itemsize


class _Decoder:
    """Everything that the header says is compared with what may be there before any array is unpacked."""

    def __init__(self, data: bytes):
        if not data.startswith(FIRST_LINE):
            raise Rejected("the file is not a lingraft certificate of version 2")
        end = data.index(b"\n", len(FIRST_LINE), len(FIRST_LINE) + 20)
        length = int(data[len(FIRST_LINE) : end])
        if not 0 < length <= min(MAX_HEADER, len(data)):
            raise Rejected("the header has an impossible length")
        self.data, start = data, end + 1 + length
        self.header: dict[str, Any] = json.loads(
            data[end + 1 : start], object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite
        )
        self.entries = self._list(start)
        self._fits()

    def _list(self, start: int) -> dict[str, _Entry]:
        """The arrays by name, all of which are in the file and are not too large."""
        found: dict[str, _Entry] = {}
        allowed = min(MAX_BYTES, ALWAYS_UNPACKED + UNPACKED * len(self.data))
        for entry in self.header["arrays"]:
            name, shape, packed = entry["name"], entry["shape"], _whole(entry["bytes"])
            if name in found or entry["type"] not in TYPES or len(shape) > MAX_RANK:
                raise Rejected(f"the array {_shown(name)} is not unique or has an unknown type or too many dimensions")
            shape = [_whole(n) for n in shape]
            found[name] = _Entry(entry["type"], shape, start, start + packed)
            start += packed
            allowed -= found[name].size
            if allowed < 0:
                raise Rejected(f"the array {_shown(name)} is too large for a file of {len(self.data):,} bytes")
        if start != len(self.data):
            raise Rejected("the file has a wrong length")
        return found

    def _fits(self) -> None:
        """Names, types and ranks of all arrays."""
        region = ["image"] if "image" in self.entries else ["lower", "upper"]
        claim = [] if self.header["label"] is not None else ["constraints", "offsets"]
        expected = {name: CLAIM[name] for name in (*region, *claim, "taps")}
        if len(self.header["trees"]) * len(PARTS) > len(self.entries):
            raise Rejected("arrays of trees are missing")
        for i in range(len(self.header["trees"])):
            parts = [*PARTS, SLOPES] if f"{i}.{SLOPES[0]}" in self.entries else PARTS
            expected |= {f"{i}.{name}": ((kind,), rank) for name, kind, rank in parts}
        if BOXES[0][0] in self.entries:
            expected |= {name: ((kind,), rank) for name, kind, rank in BOXES}
        for name in self.entries.keys() ^ expected.keys():
            raise Rejected(f"the array {_shown(name)} does not belong here or is missing")
        taps = math.prod(self.entries["taps"].shape)
        for name, (kinds, rank) in expected.items():
            entry = self.entries[name]
            if entry.kind not in kinds or rank not in (None, len(entry.shape)):
                raise Rejected(f"the array {name!r} has a wrong type or shape")
            if rank == 2 and name not in ("constraints", "boxes.shares") and entry.shape[1] != taps:
                raise Rejected(f"the array {name!r} is not about {taps} taps")

    def _take(self, name: str) -> np.ndarray:
        """Unpack an array."""
        entry = self.entries[name]
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(self.data[entry.first : entry.last], entry.size + 1)
        if len(content) != entry.size or not unpacker.eof or unpacker.unused_data:
            raise Rejected(f"the array {name!r} is damaged")
        array = np.frombuffer(content, TYPES[entry.kind]).reshape(entry.shape)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise Rejected(f"the array {name!r} holds NaN or infinity")
        return array

    def certificate(self) -> Certificate:
        header = self.header
        model, label, region, about = (header[name] for name in ("model_sha256", "label", "region", "about"))
        if not isinstance(about, dict):
            raise Rejected("the header is damaged")
        result = Certificate(_hash(model), None if label is None else _whole(label), about=about)
        result.part, result.packed = _part(header.get("part")), len(self.data)
        if "image" in self.entries:
            result.image, result.eps, clip = self._take("image"), _number(region["eps"]), region["clip"]
            result.clip = None if clip is None else (_number(clip[0]), _number(clip[1]))
            if image_hash(result.image) != region["image_sha256"]:
                raise Rejected("the image is not the one whose hash is given")
        else:
            result.lower, result.upper = self._take("lower"), self._take("upper")
        if label is None:
            result.constraints = self._take("constraints"), self._take("offsets")
            result.group = _whole(header["group"])
            if not result.group:
                raise Rejected("groups of no constraints")
        taps = self._take("taps")
        numbers, sizes = [_whole(n) for n, _ in header["sites"]], [_whole(size) for _, size in header["sites"]]
        if len(set(numbers)) != len(numbers) or sum(sizes) != len(taps):
            raise Rejected("the list of taps is damaged")
        result.taps = dict(zip(numbers, np.split(taps, np.cumsum(sizes)[:-1]), strict=True)) if sizes else {}
        result.trees = [self._tree(i, _whole(margin)) for i, margin in enumerate(header["trees"])]
        if BOXES[0][0] in self.entries:
            result.boxes = BoxTree(*(self._take(name) for name, _, _ in BOXES))
        return result

    def _tree(self, i: int, margin: int) -> Tree:
        there = [*PARTS, SLOPES] if f"{i}.{SLOPES[0]}" in self.entries else PARTS
        parts = {name: self._take(f"{i}.{name}") for name, _, _ in there}
        for name, kind, _ in there:
            if kind == "u1":
                parts[name] = np.cumsum(parts[name], axis=0, dtype=np.uint8)
        tree = tree_of(margin, parts)
        if len(tree.facets.slopes) > 1:
            raise Rejected("the parts of a tree do not fit together")
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


def _finite(text: str) -> float:
    """A number with a point or exponent, or a constant that JSON does not have."""
    return _number(float(text))


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 40:
        raise Rejected(f"{_shown(value)} is not a number that counts")
    return value


def _number(value: Any) -> float:
    number = math.inf
    if type(value) in (int, float):
        with suppress(OverflowError):  # of whole numbers with hundreds of digits
            number = float(value)
    if not math.isfinite(number):
        raise Rejected(f"{_shown(value)} is not a finite number")
    return number


def _hash(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise Rejected(f"{_shown(value)} is not a SHA-256 in hexadecimal digits")
    return value


def _part(value: Any) -> Part | None:
    if value is None:
        return None
    if value.keys() != {"property_sha256", "box", "boxes"}:
        raise Rejected("the header is damaged: a part is its property_sha256, box and boxes")
    part = Part(_hash(value["property_sha256"]), _whole(value["box"]), _whole(value["boxes"]))
    if not 1 <= part.box <= part.boxes:
        raise Rejected(f"box {part.box} of {part.boxes} does not exist")
    return part


def _shown(value: Any) -> str:
    """A value of the header, for a message: not more than a line of it."""
    return reprlib.repr(value)
