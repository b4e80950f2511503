"""Which boxes of a property are proven: a property holds only if every one of them is.

What a certificate says about its part of a property is not proven. So what is said here about a property holds if its
certificates tell the truth about that; `of_boxes` needs no such trust, but boxes that somebody has read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from lingraft.checker.format import Certificate

#: Lower and upper bounds, and sets of constraints (coefficients and constant), one of each of which must hold.
Question = tuple[bytes, bytes, frozenset[frozenset[tuple[float, ...]]]]


@dataclass
class Coverage:
    """A property by the hash of its file, how many boxes it has, which ones (from 1) are proven, and what is wrong."""

    property_sha256: str
    boxes: int
    proven: set[int] = field(default_factory=set)
    problem: str = ""

    @property
    def complete(self) -> bool:
        """Whether the property is proven."""
        return not self.problem and len(self.proven) == self.boxes

    def __str__(self) -> str:
        missing = list(islice((n for n in range(1, self.boxes + 1) if n not in self.proven), 10))
        which = f" (not {', '.join(map(str, missing))}{' …' if self.boxes - len(self.proven) > 10 else ''})"
        verdict = "proven" if self.complete else f"NOT proven{f', {self.problem}' if self.problem else ''}"
        return f"{len(self.proven)} of {self.boxes} boxes proven{which if missing else ''}: {verdict}"


def by_property(checked: Iterable[tuple[Certificate, bool]]) -> list[Coverage]:
    """What certificates, each with whether it was accepted, say about the properties that they are parts of."""
    found: dict[str, Coverage] = {}
    for certificate, accepted in checked:
        part = certificate.part
        if part is None:
            continue
        here = found.setdefault(part.property_sha256, Coverage(part.property_sha256, part.boxes))
        if part.boxes != here.boxes:
            here.problem = "its certificates differ in how many boxes it has"
            here.boxes = max(here.boxes, part.boxes)
        if accepted:
            here.proven.add(part.box)
    return list(found.values())


def of_boxes(property_sha256: str, boxes: Sequence[Question], proven: Sequence[Certificate]) -> Coverage:
    """Which of these boxes are exactly those of accepted certificates; one that is about none of them is a problem."""
    known, questions = set(boxes), [question_of(certificate) for certificate in proven]
    answered = set(questions)
    here = {number for number, box in enumerate(boxes, 1) if box in answered}
    strange = sum(question not in known for question in questions)
    problem = f"{strange} accepted certificates are not about a box of it" if strange else ""
    return Coverage(property_sha256, len(boxes), here, problem)


def question_of(certificate: Certificate) -> Question | None:
    """What is asked in a box; None for balls and labels."""
    if certificate.lower is None or certificate.upper is None or certificate.constraints is None:
        return None
    rows, shifts = certificate.constraints
    sets = [
        np.concatenate([rows[i : i + certificate.group], shifts[i : i + certificate.group, None]], axis=1)
        for i in range(0, len(shifts), certificate.group)
    ]
    return question(certificate.lower, certificate.upper, sets)


def question(lower: np.ndarray, upper: np.ndarray, sets: Iterable[np.ndarray]) -> Question:
    """Comparable: the order of constraints and of sets does not matter, nor whether one is repeated."""
    low, high = (side.astype(np.float64).tobytes() for side in (lower + 0.0, upper + 0.0))  # −0 is 0
    return low, high, frozenset(frozenset(map(tuple, rows.tolist())) for rows in sets)
