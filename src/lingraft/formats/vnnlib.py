"""Reading properties in VNN-LIB 1.0, as used by VNN-COMP: `declare-const`, `assert`, `<=`, `>=`, `and`, `or`."""

import math
import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lingraft.errors import LingraftError
from lingraft.formats.vnnlib_syntax import NUMBER, VARIABLE, Bound, Declaration, Group, read_text, statements

#: A formula that unfolds into more conjunctions than this, or into more coefficients in all of them, is refused.
MAX_CONJUNCTIONS, MAX_COEFFICIENTS = 100_000, 10_000_000

_NUMBER = re.compile(NUMBER)
_VARIABLE = re.compile(VARIABLE)


@dataclass(frozen=True)
class Conjunction:
    """Outputs y with `coefficients @ y + constants <= 0` in every row: (rows, outputs) and (rows,), float64."""

    coefficients: np.ndarray
    constants: np.ndarray

    def holds(self, y: np.ndarray) -> bool:
        """Whether an output vector y is in the set."""
        return bool((self.coefficients @ y + self.constants <= 0).all())


@dataclass(frozen=True)
class Box:
    """Inputs `lower <= x <= upper`, flat, float64; a counterexample is one whose output is in any of `unsafe`."""

    lower: np.ndarray
    upper: np.ndarray
    unsafe: list[Conjunction]


@dataclass(frozen=True)
class Property:
    """A property holds for a network if no box has a counterexample."""

    boxes: list[Box]


class _Atom(NamedTuple):
    """Σ coefficient·variable + constant <= 0, over inputs only or outputs only, from one line of the file."""

    terms: tuple[tuple[str, float], ...]
    constant: float
    line: int

    @property
    def of_input(self) -> bool:
        return self.terms[0][0][0] == "X"


#: A disjunction of conjunctions.
_Normal = list[tuple[_Atom, ...]]


def read_vnnlib(path: str | Path, inputs: int, outputs: int) -> Property:
    """The property of a file, plain or gz, about a network with these numbers of inputs and outputs.

    A file that does not fit the network, leaves an input without bounds, contradicts itself or uses anything beyond
    linear constraints on the outputs and bounds on single inputs is a LingraftError that names the line.
    """
    path = Path(path)
    try:
        return _read(read_text(path), inputs, outputs)
    except LingraftError as error:
        raise error if str(path) in str(error) else LingraftError(f"{path}, {error}") from error


def _read(text: str, inputs: int, outputs: int) -> Property:
    declared: dict[str, int] = {}
    alone: list[_Atom] = []
    disjunctions: list[_Normal] = []
    for group in statements(text):
        if isinstance(group, Bound):
            alone.append(_simple_atom(group, declared))
        elif isinstance(group, Declaration) or group.head == "declare-const":
            _declare(group, declared)
        elif group.head == "assert" and len(group.items) == 2:
            normal = _normal_form(group.items[1], group.line, declared)
            if len(normal) == 1:
                alone.extend(normal[0])
            else:
                disjunctions.append(normal)
        else:
            raise _unknown(group, group.line)
    _check_declared(declared, inputs, outputs)
    return Property(_boxes(alone, disjunctions, inputs, outputs))


def _declare(group: Group | Declaration, declared: dict[str, int]) -> None:
    if isinstance(group, Declaration):
        name = group.name
    elif [*group.items[:1], *group.items[2:]] == ["declare-const", "Real"] and _VARIABLE.fullmatch(str(group.items[1])):
        name = str(group.items[1])
    else:
        raise LingraftError(f"line {group.line}: expected (declare-const X_0 Real) with X_ for inputs, Y_ for outputs.")
    if name in declared:
        raise LingraftError(f"line {group.line}: {name} was declared before, on line {declared[name]}.")
    declared[name] = group.line


def _check_declared(declared: dict[str, int], inputs: int, outputs: int) -> None:
    for letter, what, wanted in (("X", "inputs", inputs), ("Y", "outputs", outputs)):
        count = sum(name[0] == letter for name in declared)
        if count != wanted:
            raise LingraftError(f"the property is about {count} {what}, but the network has {wanted}.")
        missing = next((i for i in range(wanted) if f"{letter}_{i}" not in declared), None)
        if missing is not None:
            raise LingraftError(f"{letter}_{missing} is not declared although there are {wanted} {what}.")


def _unknown(item: str | Group, line: int) -> LingraftError:
    what = item if isinstance(item, str) else f"({item.head or '…'} …)"
    return LingraftError(
        f"line {line}: {what[:60]!r} is not understood. lingraft reads VNN-LIB 1.0 as VNN-COMP uses it."
    )


# Formulas


def _normal_form(item: str | Group, line: int, declared: dict[str, int]) -> _Normal:
    """The disjunction of conjunctions that a formula unfolds into."""
    if not isinstance(item, Group) or len(item.items) < 2:
        raise _unknown(item, line)
    if item.head in ("<=", ">="):
        return [(_atom(item, declared),)]
    parts = [_normal_form(part, item.line, declared) for part in item.items[1:]]
    if item.head == "or":
        _limit(sum(map(len, parts)), 0, item.line)
        return [atoms for part in parts for atoms in part]
    if item.head == "and":
        _limit(math.prod(map(len, parts)), _longest(parts), item.line)
        return [tuple(atom for atoms in choice for atom in atoms) for choice in product(*parts)]
    raise _unknown(item, item.line)


def _limit(count: int, coefficients: int, line: int) -> None:
    """Refuse `count` conjunctions of up to `coefficients` numbers each before they are made."""
    if count > MAX_CONJUNCTIONS:
        raise LingraftError(f"line {line}: unfolds into more than {MAX_CONJUNCTIONS:,} conjunctions.")
    if count > 1 and count * coefficients > MAX_COEFFICIENTS:
        raise LingraftError(f"line {line}: unfolds into more than {MAX_COEFFICIENTS:,} coefficients.")


def _longest(parts: list[_Normal]) -> int:
    """Rows that a conjunction of one of each part has at most."""
    return sum(max(map(len, part)) for part in parts)


def _simple_atom(bound: Bound, declared: dict[str, int]) -> _Atom:
    if bound.name not in declared:
        raise LingraftError(f"line {bound.line}: {bound.name} is not declared before it is used.")
    if not math.isfinite(bound.number):
        raise LingraftError(f"line {bound.line}: a number is too large.")
    sign = 1.0 if bound.relation == "<=" else -1.0
    return _Atom(((bound.name, sign),), -sign * bound.number, bound.line)


def _atom(group: Group, declared: dict[str, int]) -> _Atom:
    if len(group.items) != 3:
        raise LingraftError(f"line {group.line}: {group.head} takes two sides, not {len(group.items) - 1}.")
    left = _term(group.items[1], group.line, declared)
    right = _term(group.items[2], group.line, declared)
    difference = _sum(left, right, -1.0) if group.head == "<=" else _sum(right, left, -1.0)
    constant = difference.pop("", 0.0)
    terms = tuple((name, factor) for name, factor in difference.items() if factor)
    letters = {name[0] for name, _ in terms}
    if not terms:
        raise LingraftError(f"line {group.line}: a constraint without variables.")
    if len(letters) > 1:
        raise LingraftError(f"line {group.line}: a constraint between inputs and outputs is not supported.")
    if letters == {"X"} and len(terms) > 1:
        raise LingraftError(f"line {group.line}: a constraint between inputs is not supported, only bounds of each.")
    if not all(math.isfinite(n) for n in (constant, *(factor for _, factor in terms))):
        raise LingraftError(f"line {group.line}: a number is too large.")
    return _Atom(terms, constant, group.line)


#: A linear expression: factor of each variable, and the constant under the empty name.
_Linear = dict[str, float]


def _term(item: str | Group, line: int, declared: dict[str, int]) -> _Linear:
    if isinstance(item, str):
        if item in declared:
            return {item: 1.0}
        if _NUMBER.fullmatch(item):
            return {"": float(item)}
        if _VARIABLE.fullmatch(item):
            raise LingraftError(f"line {line}: {item} is not declared before it is used.")
        raise _unknown(item, line)
    parts = [_term(part, item.line, declared) for part in item.items[1:]]
    if item.head == "+" and parts:
        total: _Linear = {}
        for part in parts:
            total = _sum(total, part, 1.0)
        return total
    if item.head == "-" and parts:
        total = _sum({}, parts[0], -1.0) if len(parts) == 1 else parts[0]
        for part in parts[1:]:
            total = _sum(total, part, -1.0)
        return total
    if item.head == "*" and parts:
        total = parts[0]
        for part in parts[1:]:
            if any(total) and any(part):
                raise LingraftError(f"line {item.line}: a product of variables is not linear.")
            values, factor = (total, part.get("", 0.0)) if any(total) else (part, total.get("", 0.0))
            total = _sum({}, values, factor)
        return total
    raise _unknown(item, item.line)


def _sum(left: _Linear, right: _Linear, factor: float) -> _Linear:
    total = dict(left)
    for name, value in right.items():
        total[name] = total.get(name, 0.0) + factor * value
    return total


# Boxes


def _boxes(alone: list[_Atom], disjunctions: list[_Normal], inputs: int, outputs: int) -> list[Box]:
    """One box for each choice of input constraints, with all the choices of output constraints that go with it."""
    line = disjunctions[-1][0][0].line if disjunctions else 0
    outside = sum(not atom.of_input for atom in alone)
    _limit(math.prod(map(len, disjunctions)), (outside + _longest(disjunctions)) * outputs, line)
    lower, upper = [-math.inf] * inputs, [math.inf] * inputs
    _tighten(lower, upper, [atom for atom in alone if atom.of_input])
    always = [atom for atom in alone if not atom.of_input]
    #: lists of bounds by their content, whatever the lines
    cases: dict[tuple[object, ...], tuple[list[_Atom], list[Conjunction]]] = {}
    for choice in product(*disjunctions):
        atoms = [atom for part in choice for atom in part]
        bounds = [atom for atom in atoms if atom.of_input]
        rows = [*always, *(atom for atom in atoms if not atom.of_input)]
        _, unsafe = cases.setdefault(tuple(atom[:2] for atom in bounds), (bounds, []))
        unsafe.append(_conjunction(rows, outputs))
    # Two disjunctions about inputs have choices that exclude each other; those are empty, not mistaken.
    about_inputs = sum(any(a.of_input for atoms in normal for a in atoms) for normal in disjunctions)
    boxes = []
    for bounds, unsafe in cases.values():
        low, high = list(lower), list(upper)
        try:
            _tighten(low, high, bounds)
        except LingraftError:
            if about_inputs > 1:
                continue
            raise
        box = Box(np.array(low), np.array(high), unsafe)
        _check_bounded(box, bounds[0].line if bounds else None)
        boxes.append(box)
    if not boxes:
        raise LingraftError("the bounds of the inputs contradict each other in every case.")
    return boxes


def _tighten(lower: list[float], upper: list[float], atoms: list[_Atom]) -> None:
    for atom in atoms:
        ((name, factor),) = atom.terms
        index, bound = int(name[2:]), 0.0 - atom.constant / factor
        if factor > 0:
            upper[index] = min(upper[index], bound)
        else:
            lower[index] = max(lower[index], bound)
        if lower[index] > upper[index]:
            raise LingraftError(
                f"line {atom.line}: the bounds of {name} contradict each other ({lower[index]} > {upper[index]})."
            )


def _check_bounded(box: Box, line: int | None) -> None:
    where = "" if line is None else f"line {line}: "
    for values, what in ((box.lower, "lower"), (box.upper, "upper")):
        open_ends = np.flatnonzero(~np.isfinite(values))
        if len(open_ends):
            raise LingraftError(f"{where}X_{open_ends[0]} has no {what} bound. Every input needs both.")


def _conjunction(atoms: list[_Atom], outputs: int) -> Conjunction:
    coefficients = np.zeros((len(atoms), outputs))
    for row, atom in enumerate(atoms):
        for name, factor in atom.terms:
            coefficients[row, int(name[2:])] = factor
    return Conjunction(coefficients, np.array([atom.constant for atom in atoms]))
