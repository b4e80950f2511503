"""Changes of certificates: bytes, the header, arrays, proofs that are forged, and claims that are false.

The file is taken apart and put together here, by its description in docs/certificates.md and not by the checker's code.
"""

import copy
import hashlib
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from cases import Case, claim_of
from chance import Rng, pick
from exact import rational
from truth import Claim

TYPES = {"u1": "|u1", "i1": "|i1", "i4": "<i4", "f4": "<f4", "f8": "<f8"}


@dataclass
class Loose:
    """A certificate in its parts: first line, header, and arrays by name; slopes (u1) are those meant."""

    first: bytes
    header: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def pack(self, rehash: bool = True, lists: Callable[[list], list] | None = None) -> bytes:
        """The file; `lists` may change the list of arrays."""
        header, packed, entries = dict(self.header), [], []
        region = header.get("region")
        if rehash and "image" in self.arrays and isinstance(region, dict) and "image_sha256" in region:
            digest = hashlib.sha256(np.ascontiguousarray(self.arrays["image"]).tobytes()).hexdigest()
            header["region"] = {**region, "image_sha256": digest}
        for name, array in self.arrays.items():
            kind = next((k for k, t in TYPES.items() if array.dtype.str == t), "f8")
            stored = array
            if kind == "u1" and array.ndim == 2:
                stored = array.copy()
                stored[1:] -= array[:-1]
            packed.append(zlib.compress(np.ascontiguousarray(stored, dtype=TYPES[kind]).tobytes(), 1))
            entries.append({"name": name, "type": kind, "shape": list(array.shape), "bytes": len(packed[-1])})
        header["arrays"] = entries if lists is None else lists(entries)
        text = json.dumps(header).encode("utf-8", "surrogatepass")
        return b"".join([self.first, b"%d\n" % len(text), text, *packed])


def take_apart(content: bytes) -> Loose:
    """The parts of a file that is well formed; any error if it is not."""
    first = content.index(b"\n") + 1
    end = content.index(b"\n", first)
    start = end + 1 + int(content[first:end])
    header, arrays = json.loads(content[end + 1 : start]), {}
    for entry in header.pop("arrays"):
        data = zlib.decompress(content[start : start + entry["bytes"]])
        array = np.frombuffer(data, TYPES[entry["type"]]).reshape(entry["shape"]).copy()
        if entry["type"] == "u1" and array.ndim == 2:
            array = np.cumsum(array, axis=0, dtype=np.uint8)
        arrays[entry["name"]] = array
        start += entry["bytes"]
    return Loose(content[:first], header, arrays)


def claim_in(loose: Loose, outputs: int) -> Claim:
    """What a certificate claims."""
    header, arrays = loose.header, loose.arrays
    if header["label"] is not None:
        label = header["label"]
        spec = -np.delete(np.eye(outputs), label, axis=0)
        spec[:, label] = 1
        offset, group = np.zeros(len(spec)), 1
    else:
        spec, offset, group = arrays["constraints"], arrays["offsets"], header["group"]
    if "image" in arrays:
        region = header["region"]
        return claim_of(arrays["image"], region["eps"], region["clip"], None, spec, offset, group)
    return claim_of(np.zeros(0), 0.0, None, (arrays["lower"], arrays["upper"]), spec, offset, group)


# --- the claim --------------------------------------------------------------------------------------------------------


def falsify(rng: Rng, loose: Loose, case: Case) -> str:
    """A claim that is false, mostly by a hair, with the same proof."""
    header, arrays = loose.header, loose.arrays
    region = header["region"]
    choice = rng.random()
    if header["label"] is not None and choice < 0.15:
        header["label"] = int(pick(rng, [i for i in range(len(case.small.outputs)) if i != header["label"]]))
        return "another label"
    if header["label"] is None and choice < 0.6:
        return _hair(rng, loose, case)
    if header["label"] is None and choice < 0.75:
        rows = arrays["constraints"]
        row = int(rng.integers(len(rows)))
        rows[row] = -rows[row] if rng.random() < 0.5 else 0.0
        if rng.random() < 0.5:
            arrays["offsets"][row] = -arrays["offsets"][row]
        return "a constraint turned round"
    if "image" in arrays:
        if rng.random() < 0.7:
            beyond = (
                case.factor * (1 + 10.0 ** -rng.uniform(1, 6)) if case.factor > 1 else 1 + 10.0 ** -rng.uniform(0, 4)
            )
            region["eps"] = float(region["eps"] * beyond)
            return "a larger ball"
        if region["clip"] is not None and rng.random() < 0.6:
            low, high = region["clip"]
            region["clip"] = pick(rng, [None, [low - 0.5, high], [low, high + 0.5], [low - 9, high + 9]])
            return "a wider clip"
        arrays["image"] = (arrays["image"] + rng.normal(0, 0.2, arrays["image"].shape)).astype(arrays["image"].dtype)
        return "another image"
    grow = 10.0 ** -rng.uniform(0, 3)
    width = arrays["upper"] - arrays["lower"]
    arrays["lower"], arrays["upper"] = arrays["lower"] - grow * width, arrays["upper"] + grow * width
    return "a larger box"


def _hair(rng: Rng, loose: Loose, case: Case) -> str:
    """Offsets such that a margin is 0, or hardly below, at a point of the region: less than rounding can tell."""
    claim = claim_in(loose, len(case.small.outputs))
    low, high = claim.lower.astype(float), claim.upper.astype(float)
    points = np.concatenate([np.clip(case.edge, low, high), np.where(rng.random((40, len(low))) < 0.5, low, high)])
    near = claim.value(case.small.near(points))
    exact = rational(points[int(np.argmin(near))])
    exact = np.clip(exact, claim.lower, claim.upper)
    rows = (claim.spec @ case.small.at(exact))[:, 0]
    groups = (rows + claim.offset).reshape(-1, claim.group).max(1)
    group = int(np.argmin(groups))
    less = rng.choice([0.0, 1e-17, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3])
    for row in range(group * claim.group, (group + 1) * claim.group):
        value = float(-rows[row])
        while Fraction(value) + rows[row] > 0:
            value = np.nextafter(value, -np.inf)
        loose.arrays["offsets"][row] = value - less * (1 + abs(value))
    return "a margin of 0"


# --- proofs -----------------------------------------------------------------------------------------------------------


def _trees(loose: Loose) -> list[str]:
    names = {name.split(".")[0] for name in loose.arrays if name.endswith(".nodes") and "clips" not in name}
    return sorted(names - {"boxes"})


def _forge_boxes(rng: Rng, arrays: dict[str, np.ndarray]) -> str:
    """A tree of boxes that proves less, or nothing: other points and inputs, halves that are missing, other shares."""
    nodes, points, shares = (arrays[f"boxes.{name}"] for name in ("nodes", "points", "shares"))
    choice = int(rng.integers(6))
    if choice == 0 and len(points):
        some = rng.integers(0, len(points), int(rng.integers(1, 4)))
        points[some] = pick(rng, [-1e300, 1e300, 0.0, points[some] + rng.normal(), points[some] * (1 + 1e-9)])
        return "other points"
    if choice == 1 and (nodes >= 0).any():
        cuts = np.flatnonzero(nodes >= 0)
        nodes[cuts] = rng.permutation(nodes[cuts]) if rng.random() < 0.5 else rng.integers(0, 4)
        return "other inputs"
    if choice == 2:
        leaves = np.flatnonzero(nodes == -1)
        last = int(leaves[rng.integers(len(leaves))]) + 1
        arrays["boxes.nodes"], arrays["boxes.points"] = nodes[:last], points[: int((nodes[:last] >= 0).sum())]
        arrays["boxes.shares"] = shares[: int((nodes[:last] < 0).sum())]
        return "boxes that end early"
    if choice == 3 and shares.size:
        shares[:] = rng.normal(0, 1, shares.shape) if rng.random() < 0.5 else -shares
        return "other shares"
    if choice == 4:  # everything is one box
        arrays["boxes.nodes"], arrays["boxes.points"], arrays["boxes.shares"] = (
            nodes[nodes == -1][:1],
            points[:0],
            shares[:1],
        )
        return "one box"
    margins = arrays["boxes.margins"]
    margins[:] = rng.integers(-1, 3, len(margins))
    return "boxes of other margins"


def forge(rng: Rng, loose: Loose, case: Case) -> str:
    """A proof changed as someone would do who wants a false claim accepted."""
    arrays = loose.arrays
    if "boxes.nodes" in arrays and (not _trees(loose) or rng.random() < 0.5):
        return _forge_boxes(rng, arrays)
    tree = pick(rng, _trees(loose))

    def has(name: str) -> bool:
        return bool(arrays[f"{tree}.{name}"].size)

    choice = int(rng.integers(14))
    nodes = arrays[f"{tree}.nodes"]
    sizes = arrays[f"{tree}.multipliers.sizes"]
    if choice in (0, 1) and (nodes == -1).any():
        _empty_leaf(rng, arrays, tree)
        return "a leaf said to be empty"
    if choice == 2 and has("rounds.gamma"):
        arrays[f"{tree}.rounds.gamma"] *= np.float32(pick(rng, [-1, -10, 100, 1e10, 1e30]))
        return "other γ"
    if choice == 3 and has("rounds.sides"):
        arrays[f"{tree}.rounds.sides"][:] = rng.choice([-1, 0, 1, 2, -128, 127], len(arrays[f"{tree}.rounds.sides"]))
        return "other sides"
    if choice == 4 and has("multipliers.beta"):
        beta = arrays[f"{tree}.multipliers.beta"]
        beta[:] = rng.normal(0, rng.choice([0.1, 10, 1e20]), len(beta)) if rng.random() < 0.5 else -beta
        return "other β"
    if choice == 5 and len(nodes) > 2:
        leaves = np.flatnonzero(nodes < 0)
        last = int(leaves[rng.integers(len(leaves))]) + 1
        kept, full = int((nodes[:last] < 0).sum()), int((nodes[:last] == -1).sum())
        arrays[f"{tree}.nodes"], arrays[f"{tree}.in_force"] = nodes[:last], arrays[f"{tree}.in_force"][:kept]
        ends = int(sizes[:full].sum())
        for part, end in (("alpha", full), ("sizes", full), ("taps", ends), ("beta", ends)):
            arrays[f"{tree}.multipliers.{part}"] = arrays[f"{tree}.multipliers.{part}"][:end]
        return "a tree that ends early"
    if choice == 6 and has("clips.grid"):
        grid = arrays[f"{tree}.clips.grid"]
        grid[:] = rng.choice([-1, -0.1, 0, 1e-30, 1, 50, 1e30], len(grid))
        if has("clips.multipliers.beta"):
            arrays[f"{tree}.clips.multipliers.beta"] *= np.float32(pick(rng, [-1, 100, 1]))
        return "other clips"
    if choice == 7:
        for part in ("in_force", "clips.in_force", "clips.forms_in_force"):
            arrays[f"{tree}.{part}"][:] = rng.integers(-1, 5)
        return "other rounds"
    if choice == 8 and has("facets.share"):
        share = arrays[f"{tree}.facets.share"]
        share[:] = rng.choice([-128, -15, 0, 7, 15, 30, 127], len(share))
        if has("facets.slopes"):
            slopes = arrays[f"{tree}.facets.slopes"]
            slopes[:] = rng.integers(0, 256, slopes.shape)
        return "other facets"
    if choice == 9 and len(nodes) > 2:
        splits = np.flatnonzero(nodes >= 0)
        nodes[splits] = rng.permutation(nodes[splits])
        return "other splits"
    if choice == 10:
        for part in ("multipliers.alpha", "rounds.alpha", "clips.forms_alpha", "clips.multipliers.alpha"):
            alpha = arrays[f"{tree}.{part}"]
            alpha[:] = rng.integers(0, 256, alpha.shape) if rng.random() < 0.5 else pick(rng, [0, 255])
        return "other slopes"
    if choice == 11 and has("clips.nodes"):
        clips = arrays[f"{tree}.clips.nodes"]
        clips[:] = rng.integers(-1, len(nodes) + 1, len(clips)) if rng.random() < 0.5 else clips[0]
        return "clips elsewhere"
    if choice == 12 and arrays["taps"].size:
        taps = arrays["taps"]
        taps[:] = rng.permutation(taps) if rng.random() < 0.5 else rng.integers(0, taps.max() + 1, len(taps))
        return "other taps"
    margins = loose.header["trees"]
    if margins:
        margins[int(rng.integers(len(margins)))] = int(rng.integers(0, 4))
    return "a tree of another margin"


def _empty_leaf(rng: Rng, arrays: dict[str, np.ndarray], tree: str) -> None:
    nodes, name = arrays[f"{tree}.nodes"], f"{tree}.multipliers."
    which = int(rng.integers((nodes == -1).sum()))
    nodes[np.flatnonzero(nodes == -1)[which]] = -2
    starts = np.concatenate([[0], np.cumsum(arrays[name + "sizes"])])
    gone = np.arange(starts[which], starts[which + 1])
    arrays[name + "alpha"] = np.delete(arrays[name + "alpha"], which, axis=0)
    arrays[name + "sizes"] = np.delete(arrays[name + "sizes"], which)
    arrays[name + "taps"], arrays[name + "beta"] = (
        np.delete(arrays[name + "taps"], gone),
        np.delete(arrays[name + "beta"], gone),
    )


def change_array(rng: Rng, loose: Loose) -> str:
    """An array with other numbers, another shape or type, left out, or twice."""
    name = pick(rng, [n for n, a in loose.arrays.items() if a.size] if rng.random() < 0.8 else list(loose.arrays))
    array = loose.arrays[name]
    choice = int(rng.integers(12))
    if choice < 5 and array.size:
        flat = array.reshape(-1)
        some = rng.integers(0, len(flat), int(rng.integers(1, 4)))
        if array.dtype.kind == "f":
            flat[some] = pick(
                rng,
                [
                    0,
                    -1,
                    1,
                    np.nan,
                    np.inf,
                    -np.inf,
                    1e30,
                    1e-30,
                    -1e300,
                    1e-320,
                    flat[some] * 1.001,
                    -flat[some],
                    rng.normal(),
                ],
            )
        else:
            limits = np.iinfo(array.dtype)
            value = int(pick(rng, [0, 1, -1, -2, -3, 2, 5, 20, 100, limits.max, limits.min]))
            flat[some] = np.clip(value, limits.min, limits.max)
    elif choice == 5 and array.size:
        loose.arrays[name] = np.ascontiguousarray(array[rng.permutation(len(array))] if array.ndim else array)
    elif choice == 6:
        loose.arrays[name] = (
            np.delete(array, int(rng.integers(len(array))), axis=0) if array.ndim and len(array) else array
        )
    elif choice == 7 and array.size:
        loose.arrays[name] = np.concatenate([array, array[:1]])
    elif choice == 8:
        loose.arrays[name] = array.astype(pick(rng, list(TYPES.values())), casting="unsafe")
    elif choice == 9:
        loose.arrays[name] = array.reshape(pick(rng, [(-1,), (1, *array.shape), (*array.shape, 1), array.shape[::-1]]))
    elif choice == 10:
        del loose.arrays[name]
    elif array.size:  # bytes of an array
        data = bytearray(array.tobytes())
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        loose.arrays[name] = np.frombuffer(bytes(data), array.dtype).reshape(array.shape).copy()
    return f"array {name.split('.', 1)[-1]}"


def swap(rng: Rng, loose: Loose, other: Loose) -> str:
    """Parts of another certificate."""
    choice = int(rng.integers(5))
    if choice == 0:
        for name in [n for n in loose.arrays if n[0].isdigit()]:
            del loose.arrays[name]
        loose.arrays.update({n: a.copy() for n, a in other.arrays.items() if n[0].isdigit()})
        loose.header["trees"] = copy.deepcopy(other.header["trees"])
        if rng.random() < 0.7:
            loose.arrays["taps"], loose.header["sites"] = (
                other.arrays["taps"].copy(),
                copy.deepcopy(other.header["sites"]),
            )
    elif choice == 1:
        name = pick(rng, [n for n in loose.arrays if n in other.arrays])
        loose.arrays[name] = other.arrays[name].copy()
    elif choice == 2:
        key = pick(rng, [k for k in loose.header if k in other.header and k != "model_sha256"])
        loose.header[key] = copy.deepcopy(other.header[key])
    elif choice == 3:
        for name in ("image", "lower", "upper", "constraints", "offsets"):
            loose.arrays.pop(name, None)
            if name in other.arrays:
                loose.arrays[name] = other.arrays[name].copy()
        for key in ("region", "label", "group"):
            loose.header[key] = copy.deepcopy(other.header[key])
    else:
        one, two = pick(rng, list(loose.arrays)), pick(rng, list(loose.arrays))
        loose.arrays[one], loose.arrays[two] = loose.arrays[two], loose.arrays[one]
    return "parts of another certificate"


# --- the header -------------------------------------------------------------------------------------------------------

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3, 10**9, 2**31, 2**32, 2**40, 2**63, 2**64, 10**40, -(10**40), 0.0, -0.0, 0.5, 1.0, 1e308, 1e-320, float("nan"),
    float("inf"), -float("inf"), "", "1", "nan", "\ud800", "\u0000", "é" * 50, [], [[]], [0], [0, 1], [1, 0], [0, 0, 0], {}, {"eps": 1}, [[[[[[]]]]]], 10**5000 // 10**4990,
]  # fmt: skip


def damage_header(rng: Rng, loose: Loose) -> tuple[bytes, str]:
    """Values that do not belong there, lists in another order, sizes that do not fit, keys twice."""
    header, choice = loose.header, int(rng.integers(10))
    if choice < 4:
        place, key = (
            header,
            pick(rng, [k for k in header if k != "model_sha256"] + ["region", "region", "label", "group"]),
        )
        while isinstance(place[key], dict | list) and place[key] and rng.random() < 0.7:
            place = place[key]
            key = pick(rng, list(place) if isinstance(place, dict) else range(len(place)))
        old = place[key]
        near = [old * 2, -old, old + 1, float(old), old * (1 + 1e-9)] if type(old) in (int, float) else []
        place[key] = copy.deepcopy(pick(rng, ODD + near * 3))
        return loose.pack(rehash=rng.random() < 0.9), f"header {key}"
    if choice == 4:
        key = pick(rng, list(header))
        if rng.random() < 0.5:
            del header[key]
        else:
            header[pick(rng, ["more", "eps", "image", "", "label "])] = pick(rng, ODD)
        return loose.pack(), "a key left out or added"
    if choice < 8:

        def lists(entries: list) -> list:
            at = int(rng.integers(len(entries)))
            kind = int(rng.integers(6))
            if kind == 0:
                entries[at]["shape"] = pick(
                    rng,
                    [[], [0], [-1], [2**40], [2**20, 2**20], [2**31, 2**31, 2**31], entries[at]["shape"][::-1], [True]],
                )
            elif kind == 1:
                entries[at]["type"] = pick(rng, [*TYPES, "f2", "i8", "O", None, []])
            elif kind == 2:
                entries[at]["bytes"] = pick(rng, [0, -1, 1, 2**40, entries[at]["bytes"] + 1, entries[at]["bytes"] - 1])
            elif kind == 3:
                entries[at]["name"] = pick(rng, [e["name"] for e in entries] + ["", None, "9.nodes", []])
            elif kind == 4:
                entries = [entries[i] for i in rng.permutation(len(entries))]
            else:
                entries.insert(at, dict(entries[at])) if rng.random() < 0.5 else entries.pop(at)
            return entries

        return loose.pack(lists=lists), "list of arrays"
    if choice == 8 and rng.random() < 0.5:
        place: Any = {}
        for _ in range(int(pick(rng, [10, 500, 5000]))):
            place = [place]
        header["about"] = {"deep": 0}
        return loose.pack().replace(b'{"deep": 0}', json_of(place)), "a deep header"
    content = loose.pack()
    first = content.index(b"\n") + 1
    end = content.index(b"\n", first)
    start = end + 1 + int(content[first:end])
    text = content[end + 1 : start]
    more = pick(
        rng,
        [
            b'"label": 0, ',
            b'"group": 1, ',
            b'"region": {}, ',
            b'"region": {"eps": 0.0, "clip": null, "image_sha256": ""}, ',
            b'"trees": [], ',
            b" \n",
            b"\xef\xbb\xbf",
            b'"eps": 0, ',
        ],
    )
    text = text[:1] + more + text[1:] if rng.random() < 0.5 else text[:-1] + b", " + more.rstrip(b", ") + b"}"
    length = b"%d" % len(text)
    length = pick(
        rng,
        [
            length,
            length,
            length,
            b"+" + length,
            b"0" + length,
            length + b" ",
            b"0x10",
            b"1_0",
            "٣".encode(),
            b"-1",
            b"9" * 18,
        ],
    )
    return content[:first] + length + b"\n" + text + content[start:], "the header's text"


def json_of(value: Any) -> bytes:
    """JSON of lists in lists, without recursion."""
    depth = 0
    while isinstance(value, list) and value:
        value, depth = value[0], depth + 1
    return b"[" * depth + b"{}" + b"]" * depth
