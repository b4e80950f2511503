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
from lingraft.formats.vnnlib_formula import Atom, limit, longest
from lingraft.formats.vnnlib_query import Query, read_query

#: Below this share of its terms a sum in float64 has no certain sign.
UNCERTAIN = 1e-12


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


def read_vnnlib(path: str | Path, inputs: int, outputs: int) -> Property:
    """The property of a file, plain or gz, about one network with these numbers of inputs and outputs.

    A file that does not fit the network, leaves an input without bounds, contradicts itself or uses anything beyond
    linear constraints on the outputs and bounds on single inputs is a LingraftError that names the line. What else
    lingraft can read of version 2.0 is in `read_query` and `property_of`.
    """
    query = read_query(path)
    try:
        require_sizes(query, inputs, outputs)
        for atom in query.atoms():
            if atom.has_inputs and not atom.is_bound:
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
    with_inputs = any(atom.has_inputs and not atom.is_bound for atom in query.atoms())
    return Property(_boxes(query, query.outputs + with_inputs * query.inputs), with_inputs)


def _boxes(query: Query, width: int) -> list[Box]:
    """One box for each choice of input bounds, with all the choices of other constraints that go with it.

    The others have `width` coefficients.
    """
    alone, disjunctions = query.alone, query.disjunctions
    line = next((atom.line for normal in reversed(disjunctions) for atoms in normal for atom in atoms), 0)
    always = [atom for atom in alone if not atom.is_bound]
    limit(math.prod(map(len, disjunctions)), (len(always) + longest(disjunctions)) * width, line)
    start = _Ends.everywhere(query.inputs)
    try:
        start.tighten([atom for atom in alone if atom.is_bound], query)
        start.restrict([atom for atom in always if all(variable >= 0 for variable, _ in atom.terms)], query)
    except _EmptyError:
        if query.version == "1.0":
            raise
        return []
    #: lists of bounds by their content, whatever the lines
    cases: dict[tuple[object, ...], tuple[list[Atom], list[Conjunction]]] = {}
    for choice in product(*disjunctions):
        atoms = [atom for part in choice for atom in part]
        bounds = [atom for atom in atoms if atom.is_bound]
        rows = [*always, *(atom for atom in atoms if not atom.is_bound)]
        _, unsafe = cases.setdefault(tuple(atom._replace(line=0) for atom in bounds), (bounds, []))
        if not _contradict(rows):
            unsafe.append(_conjunction(rows, query.outputs, width))
    # Two disjunctions about inputs have choices that exclude each other; those are empty, not mistaken.
    about_inputs = sum(any(a.is_bound for atoms in normal for a in atoms) for normal in disjunctions)
    boxes, empty = [], 0
    for bounds, unsafe in cases.values():
        ends = start.copy()
        try:
            ends.tighten(bounds, query)
        except _EmptyError:
            if about_inputs <= 1 and query.version == "1.0":
                raise
            empty += 1
            continue
        if unsafe:
            boxes.append(ends.box(unsafe, query, bounds[0].line if bounds else None))
    if empty == len(cases) and query.version == "1.0":
        raise LingraftError("the bounds of the inputs contradict each other in every case.")
    return boxes


class _EmptyError(LingraftError):
    """Bounds that no input is between."""


class _Ends:
    """Bounds of all inputs, and which of them are not allowed themselves."""

    def __init__(self, lower: list[float], upper: list[float], open_ends: set[tuple[int, int]]):
        self.lower, self.upper, self.open = lower, upper, open_ends

    @classmethod
    def everywhere(cls, inputs: int) -> "_Ends":
        return cls([-math.inf] * inputs, [math.inf] * inputs, set())

    def copy(self) -> "_Ends":
        return _Ends(list(self.lower), list(self.upper), set(self.open))

    def tighten(self, atoms: Sequence[Atom], query: Query) -> None:
        """Take in bounds of single inputs."""
        for atom in atoms:
            ((index, factor),) = atom.terms
            bound, side = 0.0 - atom.constant / factor, int(factor > 0)
            before = self.upper[index] if side else self.lower[index]
            tighter = bound < before if side else bound > before
            if tighter:
                (self.upper if side else self.lower)[index] = bound
                self.open.discard((side, index))
            if atom.strict and (tighter or bound == before):
                self.open.add((side, index))
            self._require(index, atom.line, query)

    def restrict(self, atoms: Sequence[Atom], query: Query) -> None:
        """Take in what constraints between inputs imply."""
        if not atoms:
            return
        before = np.array(self.lower), np.array(self.upper)
        for side, (old, new) in enumerate(zip(before, tighten(*before, atoms), strict=True)):
            (self.upper if side else self.lower)[:] = new.tolist()
            self.open -= {(side, int(index)) for index in np.flatnonzero(old != new)}
        for index in np.flatnonzero(np.array(self.lower) >= np.array(self.upper)):
            self._require(int(index), atoms[0].line, query)

    def _require(self, index: int, line: int, query: Query) -> None:
        low, high = self.lower[index], self.upper[index]
        if low > high or (low == high and ((0, index) in self.open or (1, index) in self.open)):
            name = query.input_name(index)
            raise _EmptyError(f"line {line}: the bounds of {name} contradict each other ({low} and {high}).")

    def box(self, unsafe: list[Conjunction], query: Query, line: int | None) -> Box:
        """The box, which must be finite."""
        ends = np.array([self.lower, self.upper])
        for values, what in zip(ends, ("lower", "upper"), strict=True):
            missing = np.flatnonzero(~np.isfinite(values))
            if len(missing):
                where = "" if line is None else f"line {line}: "
                name = query.input_name(int(missing[0]))
                raise LingraftError(f"{where}{name} has no {what} bound. Every input needs both.")
        marks = None
        if self.open:
            marks = np.zeros(ends.shape, bool)
            marks[tuple(np.array(sorted(self.open)).T)] = True
        return Box(*ends, unsafe, marks)


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
