"""Properties in VNN-LIB, 1.0 or 2.0: boxes of inputs, and what the outputs must not be there."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from lingraft.errors import LingraftError
from lingraft.formats.vnnlib_bounds import tighten
from lingraft.formats.vnnlib_formula import Atom, limit, longest, outward
from lingraft.formats.vnnlib_query import Query, read_query

#: Below this share of its terms a sum in float64 has no certain sign.
UNCERTAIN = 1e-12
#: Bounds of boxes may be so many times as many as coefficients.
SMALLER = 4


@dataclass(frozen=True)
class Conjunction:
    """Outputs y with `coefficients @ y + constants <= 0` in every row: (rows, outputs) and (rows,), float64.

    In the rows where `strict` (rows,) is true, it is < 0.
    """

    coefficients: np.ndarray
    constants: np.ndarray
    strict: np.ndarray | None = None

    def holds(self, y: np.ndarray) -> bool:
        """Whether an output vector y is in the set, exactly: where float64 does not tell, fractions do."""
        values = self.coefficients @ y + self.constants
        terms = np.abs(self.coefficients) @ np.abs(y) + np.abs(self.constants)
        strict = np.zeros(len(values), bool) if self.strict is None else self.strict
        for row in np.flatnonzero(np.abs(values) <= UNCERTAIN * terms):
            used = np.flatnonzero(self.coefficients[row])
            products = (
                Fraction(float(c)) * Fraction(float(v))
                for c, v in zip(self.coefficients[row, used], y[used], strict=True)
            )
            exact = sum(products, Fraction(float(self.constants[row])))
            values[row] = (exact > 0) - (exact < 0)
        return bool(np.where(strict, values < 0, values <= 0).all())


@dataclass(frozen=True)
class Box:
    """Inputs `lower <= x <= upper`, flat, float64; a counterexample is one whose output is in any of `unsafe`.

    `open_ends` says where the lower and the upper bound (2, inputs) are themselves not allowed; None: nowhere.
    """

    lower: np.ndarray
    upper: np.ndarray
    unsafe: list[Conjunction]
    open_ends: np.ndarray | None = None

    def contains(self, x: np.ndarray) -> bool:
        """Whether an input is in the box exactly."""
        inside = bool(((x >= self.lower) & (x <= self.upper)).all())
        if self.open_ends is None or not inside:
            return inside
        return not bool((self.open_ends & np.stack([x == self.lower, x == self.upper])).any())


@dataclass(frozen=True)
class Property:
    """A property holds for a network if no box has a counterexample; one without boxes contradicts itself.

    If `with_inputs`, the sets `unsafe` are about outputs followed by inputs.
    """

    boxes: list[Box]
    with_inputs: bool = False


def read_vnnlib(path: str | Path, inputs: int, outputs: int, names: Sequence[str] = ()) -> Property:
    """The property of a file, plain or gz, about one network with these numbers of inputs and outputs.

    `names` are those of the input and the output in the ONNX file: a property may name other values of it.

    A file that does not fit the network, leaves an input without bounds, contradicts itself or uses anything beyond
    linear constraints on the outputs and bounds on single inputs is a LingraftError that names the line. What else
    lingraft can read of version 2.0 is in `read_query` and `property_of`.
    """
    query = read_query(path)
    try:
        require_sizes(query, inputs, outputs)
        (network,) = query.networks
        for tensor, what, name in zip((*network.inputs, *network.outputs), ("input", "output"), names, strict=False):
            if tensor.onnx not in (None, name):
                raise LingraftError(
                    f"the property is about {tensor.onnx!r}, but the {what} of the network is {name!r}."
                )
        for atom in query.atoms():
            if atom.relates_inputs:
                what = "inputs" if all(variable >= 0 for variable, _ in atom.terms) else "inputs and outputs"
                raise LingraftError(f"line {atom.line}: a constraint between {what} is not supported here.")
        return property_of(query)
    except LingraftError as error:
        raise LingraftError(f"{path}, {error}") from error


def require_sizes(query: Query, inputs: int, outputs: int) -> None:
    """Refuse a query that is not about one network, or about one of another size."""
    if not query.is_plain:
        raise LingraftError("the property is about several networks, inputs or outputs, or inputs that are equal.")
    for what, declared, wanted in (("inputs", query.inputs, inputs), ("outputs", query.outputs, outputs)):
        if declared != wanted:
            raise LingraftError(f"the property is about {declared} {what}, but the network has {wanted}.")


def property_of(query: Query) -> Property:
    """What a query asks for; of version 1.0, a contradiction is taken for a mistake, which is a LingraftError."""
    with_inputs = any(atom.relates_inputs for atom in query.atoms())
    return Property(_boxes(query, query.outputs + with_inputs * query.inputs), with_inputs)


def _boxes(query: Query, width: int) -> list[Box]:
    """One box for each choice of input bounds, with all the choices of other constraints that go with it.

    The others have `width` coefficients.
    """
    alone, disjunctions = query.alone, query.disjunctions
    line = next((atom.line for normal in reversed(disjunctions) for atoms in normal for atom in atoms), 0)
    always = [atom for atom in alone if not atom.is_bound]
    limit(math.prod(map(len, disjunctions)), (len(always) + longest(disjunctions)) * width, line)
    # Two disjunctions about inputs have choices that exclude each other; those are empty, not mistaken.
    about_inputs = sum(any(a.is_bound for atoms in normal for a in atoms) for normal in disjunctions)
    if about_inputs:
        limit(math.prod(map(len, disjunctions)), query.inputs // SMALLER, line)
    start = _Ends.everywhere(query.inputs)
    try:
        start.tighten([atom for atom in alone if atom.is_bound], query)
        start.restrict([atom for atom in always if all(variable >= 0 for variable, _ in atom.terms)], query)
    except _EmptyError:
        if query.version == "1.0":
            raise
        return []
    #: boxes by their bounds
    boxes: dict[bytes, Box] = {}
    every, empty = 0, 0
    for choice in product(*disjunctions):
        atoms = choice[0] if len(choice) == 1 else [atom for part in choice for atom in part]
        # not is_bound: there are millions of them
        bounds = [atom for atom in atoms if len(atom.terms) == 1 and atom.terms[0][0] >= 0]
        others = [atom for atom in atoms if len(atom.terms) != 1 or atom.terms[0][0] < 0]
        rows = [*always, *others]
        ends, every = start.copy(), every + 1
        try:
            ends.tighten(bounds, query)
        except _EmptyError:
            if about_inputs <= 1 and query.version == "1.0":
                raise
            empty += 1
            continue
        if not _contradict(rows):
            box = boxes.get(ends.content())
            if box is None:
                box = boxes[ends.content()] = ends.box(query, bounds[0].line if bounds else None)
            box.unsafe.append(_conjunction(rows, query.outputs, width))
    if empty == every and query.version == "1.0":
        raise LingraftError("the bounds of the inputs contradict each other in every case.")
    return list(boxes.values())


class _EmptyError(LingraftError):
    """Bounds that no input is between."""


class _Ends:
    """Bounds of all inputs, (2, inputs), and which of them are not allowed themselves."""

    def __init__(self, ends: np.ndarray, open_ends: np.ndarray | None):
        self.ends, self.open = ends, open_ends

    @classmethod
    def everywhere(cls, inputs: int) -> "_Ends":
        return cls(np.array([[-math.inf] * inputs, [math.inf] * inputs]), None)

    def copy(self) -> "_Ends":
        return _Ends(self.ends.copy(), None if self.open is None else self.open.copy())

    def content(self) -> bytes:
        """The same for the same bounds."""
        return self.ends.tobytes() + (b"" if self.open is None else self.open.tobytes())

    def tighten(self, atoms: Sequence[Atom], query: Query) -> None:
        """Take in bounds of single inputs."""
        if not atoms:
            return
        index = np.array([atom.terms[0][0] for atom in atoms])
        factors = np.array([atom.terms[0][1] for atom in atoms])
        bounds = 0.0 - np.array([atom.constant for atom in atoms]) * factors  # of factors ±1
        strict = np.array([atom.strict for atom in atoms])
        for number in np.flatnonzero(abs(factors) != 1).tolist():
            # rounded outwards, so that what is rounded is not allowed itself
            bound = -Fraction(atoms[number].constant) / Fraction(float(factors[number]))
            bounds[number] = outward(bound, math.copysign(math.inf, factors[number]))
            strict[number] |= bounds[number] != bound
        if strict.any() and self.open is None:
            self.open = np.zeros(self.ends.shape, bool)
        lines = np.array([atom.line for atom in atoms])
        for side, chosen, narrow in ((0, factors < 0, np.maximum), (1, factors > 0, np.minimum)):
            values, places, before = self.ends[side], index[chosen], self.ends[side].copy()
            narrow.at(values, places, bounds[chosen])
            if self.open is not None:
                self.open[side] &= values == before
                at_end = strict & chosen & (bounds == values[index])
                self.open[side, index[at_end]] = True
        empty = self._empty()[index]
        if empty.any():
            number = int(np.flatnonzero(empty)[0])
            self._refuse(int(index[number]), int(lines[index == index[number]].max()), query)

    def restrict(self, atoms: Sequence[Atom], query: Query) -> None:
        """Take in what constraints between inputs imply."""
        if not atoms:
            return
        before = self.ends
        self.ends = np.stack(tighten(before[0], before[1], atoms))
        if self.open is not None:
            self.open &= before == self.ends
        empty = np.flatnonzero(self._empty())
        if len(empty):
            self._refuse(int(empty[0]), atoms[0].line, query)

    def _empty(self) -> np.ndarray:
        """Which inputs have no values left."""
        low, high = self.ends
        none = low > high
        return none if self.open is None else none | ((low == high) & self.open.any(0))

    def _refuse(self, index: int, line: int, query: Query) -> None:
        low, high = self.ends[:, index].tolist()
        raise _EmptyError(
            f"line {line}: the bounds of {query.input_name(index)} contradict each other ({low}, {high})."
        )

    def box(self, query: Query, line: int | None) -> Box:
        """The box, which must be finite, without sets yet."""
        for values, what in zip(self.ends, ("lower", "upper"), strict=True):
            missing = np.flatnonzero(~np.isfinite(values))
            if len(missing):
                where = "" if line is None else f"line {line}: "
                name = query.input_name(int(missing[0]))
                raise LingraftError(f"{where}{name} has no {what} bound. Every input needs both.")
        return Box(self.ends[0], self.ends[1], [], self.open if self.open is not None and self.open.any() else None)


def _contradict(atoms: Sequence[Atom]) -> bool:
    """Whether two of the constraints are about opposite sums and cannot both hold: s + a <= 0 and −s + b <= 0."""
    seen: dict[frozenset[tuple[int, float]], tuple[float, bool]] = {}
    for atom in atoms:
        key = frozenset(atom.terms)
        # the one that allows less
        seen[key] = max(seen.get(key, (-math.inf, False)), (atom.constant, atom.strict))
    for key, (constant, strict) in seen.items():
        other = seen.get(frozenset((variable, -factor) for variable, factor in key))
        if other is not None and (constant + other[0] > 0 or (constant == -other[0] and (strict or other[1]))):
            return True
    return False


def _conjunction(atoms: Sequence[Atom], outputs: int, width: int) -> Conjunction:
    coefficients = np.zeros((len(atoms), width))
    for row, atom in enumerate(atoms):
        for variable, factor in atom.terms:
            coefficients[row, outputs + variable if variable >= 0 else -1 - variable] = factor
    strict = np.array([atom.strict for atom in atoms], bool)
    return Conjunction(coefficients, np.array([atom.constant for atom in atoms]), strict if strict.any() else None)
