"""What a certificate claims, exactly: for people in a few lines, for programs in full.

All numbers have all their digits: they are read back as the same float64 numbers.
"""

import math
from typing import Any

import numpy as np

from lingraft.checker.format import Certificate, Part, box_hash, image_hash

#: How much of a list people get to see: pixels, constraints, and the terms and alternatives of one.
PIXELS, CONSTRAINTS, TERMS = 6, 12, 12


def statement(certificate: Certificate, outputs: int) -> dict[str, Any]:
    """The claim about a network with so many outputs, in full, for JSON."""
    return {
        "model_sha256": certificate.model,
        "region": _region(certificate),
        "holds": _holds(certificate, outputs),
        "part": None if certificate.part is None else vars(certificate.part),
    }


def in_words(certificate: Certificate, outputs: int) -> list[str]:
    """The claim about a network with so many outputs, cut where it is long, in lines for people."""
    region, part = _region(certificate), certificate.part
    if certificate.image is not None:
        center = _cut([repr(value) for value in region["center"][:PIXELS]], len(region["center"]), ", ", "inputs")
        cut = "" if region["clip"] is None else f", cut to {region['clip'][0]!r} ≤ x ≤ {region['clip'][1]!r}"
        where = [
            f"for all x with |x − image| ≤ {region['eps']!r} in every input{cut}",
            f"image: sha256 {region['image_sha256']}: {center}",
        ]
    else:
        where = [
            f"for all x in the box with sha256 {region['sha256']}",
            f"box: {region['inputs']} inputs, widths {region['smallest_width']!r} to {region['largest_width']!r},"
            f" lower bounds from {region['smallest_lower']!r}, upper bounds to {region['largest_upper']!r}",
        ]
    holds = _holds(certificate, outputs, CONSTRAINTS)
    count = 0 if certificate.constraints is None else len(certificate.constraints[1]) // max(1, certificate.group)
    more = [] if count <= len(holds) else [f"… and {count - len(holds)} more constraints, {count} in all"]
    if part is not None:
        more.append(part_in_words(part))
    elif "box" in certificate.about:  # as lingraft 0.1.0 wrote it
        more.append("one box of a property; the certificate does not say of how many")
    return [*where, *holds, *more]


def part_in_words(part: Part) -> str:
    """Which part of what."""
    which = "the only box" if part.boxes == 1 else f"PART: box {part.box} of {part.boxes}"
    return f"{which} of the property with sha256 {part.property_sha256}"


def _region(certificate: Certificate) -> dict[str, Any]:
    if certificate.image is not None:
        return {
            "kind": "ball",
            "eps": certificate.eps,
            "clip": certificate.clip,
            "image_sha256": image_hash(certificate.image),
            "center": certificate.image.astype(np.float64).reshape(-1).tolist(),
        }
    assert certificate.lower is not None
    assert certificate.upper is not None
    lower, upper = certificate.lower, certificate.upper
    fits = lower.shape == upper.shape and lower.size
    widths = upper - lower if fits else np.full(1, np.nan)
    extent = {
        "smallest_width": widths.min(),
        "largest_width": widths.max(),
        "smallest_lower": lower.min(initial=np.inf),
        "largest_upper": upper.max(initial=-np.inf),
    }
    finite = {name: float(value) if math.isfinite(value) else None for name, value in extent.items()}
    return {"kind": "box", "sha256": box_hash(lower, upper), "inputs": lower.size, **finite}


def _holds(certificate: Certificate, outputs: int, most: int | None = None) -> list[str]:
    """Constraints in words, all of them or the first ones, cut likewise."""
    if certificate.constraints is None:
        others = [f"y{i}" for i in range(outputs) if i != certificate.label]
        if most is None:
            return [f"y{certificate.label} > {other}" for other in others]
        some = _cut(others[:TERMS], len(others), ", ", "others")
        return [f"output {certificate.label} exceeds every other: y{certificate.label} > {some}"]
    rows, shifts = certificate.constraints
    group = max(1, certificate.group)
    found = []
    for first in range(0, len(shifts), group)[:most]:
        each = dict.fromkeys(  # sets of fewer constraints repeat one
            _inequality(rows[i], float(shifts[i]), most)
            for i in range(first, min(first + group, len(shifts), len(rows)))[: None if most is None else 4 * TERMS]
        )
        shown = list(each) if most is None else list(each)[:TERMS]
        found.append(" or ".join(shown) + ("" if len(shown) == len(each) else f" or … ({group} in all)"))
    return found


def _inequality(row: np.ndarray, shift: float, most: int | None) -> str:
    """Σ row·y + shift > 0."""
    used = np.flatnonzero(row)
    terms = [(float(row[i]), f"y{i}") for i in (used if most is None else used[:TERMS])]
    terms += [(shift, "")] if shift or not terms else []
    text = ""
    for value, name in terms:
        sign = ("−" if value < 0 else "") if not text else (" − " if value < 0 else " + ")
        size = repr(abs(value))
        text += sign + (name if name and abs(value) == 1 else f"{size}·{name}" if name else size)
    return f"{text}{'' if len(terms) >= len(used) else f' + … ({len(used)} terms)'} > 0"


def _cut(shown: list[str], count: int, between: str, what: str) -> str:
    return between.join(shown) + (f" … ({count} {what})" if count > len(shown) else "")
