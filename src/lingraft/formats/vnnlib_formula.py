"""Formulas of VNN-LIB: what comparisons, `and` and `or` of linear terms say, as a disjunction of conjunctions."""

import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from lingraft.errors import LingraftError
from lingraft.formats.vnnlib_syntax import COMPARISON, NUMBER, Group

#: A formula that unfolds into more conjunctions than this, or into more coefficients in all of them, is refused.
MAX_CONJUNCTIONS, MAX_COEFFICIENTS = 100_000, 10_000_000

#: An input by its number i ≥ 0, an output j as −1 − j.
Variable = int

#: The variable of a word; None for a word that is no name of one. An undeclared one is a LingraftError.
Resolve = Callable[[str, int], Variable | None]

_NUMBER = re.compile(NUMBER)
#: What may also stand between its operands in version 2.0, those that bind more tightly first.
_OPERATORS = (("*",), ("+", "-"), ("<=", ">=", "<", ">", "==", "!="), ("and", "or"))


class Atom(NamedTuple):
    """Σ coefficient·variable + constant <= 0 (< 0 if `strict`), with no variable twice, from one line of the file."""

    terms: tuple[tuple[Variable, float], ...]
    constant: float
    line: int
    strict: bool = False

    @property
    def is_bound(self) -> bool:
        """Whether it bounds a single input."""
        return len(self.terms) == 1 and self.terms[0][0] >= 0

    @property
    def relates_inputs(self) -> bool:
        """Whether it relates inputs to each other or to outputs."""
        return len(self.terms) > 1 and any(variable >= 0 for variable, _ in self.terms)


#: A disjunction of conjunctions; one that is empty is never true, and one with an empty conjunction always.
Normal = list[tuple[Atom, ...]]

#: A linear expression: factor of each variable, and the constant under None.
_Linear = dict[Variable | None, Fraction]


def unknown(item: str | Group, line: int) -> LingraftError:
    """The error about syntax that is none of VNN-LIB."""
    what = item if isinstance(item, str) else f"({item.head or '…'} …)"
    return LingraftError(
        f"line {line}: {what[:60]!r} is not understood. lingraft reads VNN-LIB 1.0 and 2.0 as VNN-COMP uses them."
    )


@dataclass
class Scope:
    """What words stand for in a file, and which relations it may use."""

    resolve: Resolve
    relations: Sequence[str]
    _seen: dict[str, tuple[tuple[tuple[Variable, float], ...], float]] = field(default_factory=dict)

    def bound(self, relation: str, name: str, number: float, line: int) -> Atom:
        """A comparison of a variable with a number."""
        variable = self.resolve(name, line)
        if variable is None:
            raise unknown(name, line)
        if not math.isfinite(number):
            raise LingraftError(f"line {line}: a number is too large.")
        sign = 1.0 if relation == "<=" else -1.0
        return Atom(((variable, sign),), -sign * number, line)

    def comparison(self, text: str, line: int) -> Atom:
        """The same from its text; most texts of a large file come again and again."""
        seen = self._seen.get(text)
        if seen is None:
            found = COMPARISON.fullmatch(text)
            if found is None:
                raise unknown(text, line)
            atom = self.bound(found[1], found[2], float(found[3]), line)
            seen = self._seen[text] = atom.terms, atom.constant
        return Atom(*seen, line)


def prefixed(item: str | Group) -> str | Group:
    """A formula in which every operator comes first: (X[0] <= 1) becomes (<= X[0] 1), and so do sums and products.

    Of different operators side by side, products come before sums and differences, and these before comparisons. `and`
    beside `or`, several comparisons, and an operator that stands first and between are left as they are, and not
    understood.
    """
    if isinstance(item, str):
        return item
    items, every = [prefixed(part) for part in item.items], [word for words in _OPERATORS for word in words]
    between = items[1::2]
    if len(items) < 3 or len(items) % 2 == 0 or items[0] in every or any(word not in every for word in between):
        return Group(items, item.line)
    for words in _OPERATORS:
        items = _together(items, words, item.line)
    (whole,) = items
    return whole


def _together(items: Sequence[str | Group], words: Sequence[str], line: int) -> list[str | Group]:
    """Operands and what stands between them, with those around some operators put together."""
    runs = [[items[0]]]
    between = []
    for word, operand in zip(items[1::2], items[2::2], strict=True):
        if word in words:
            runs[-1] += [word, operand]
        else:
            between.append(word)
            runs.append([operand])
    found = [_applied(run, line) for run in runs]
    return [found[0], *(item for pair in zip(between, found[1:], strict=True) for item in pair)]


def _applied(run: list[str | Group], line: int) -> str | Group:
    """Operands with operators of one kind between them, with the operator first."""
    if len(run) == 1:
        return run[0]
    words = run[1::2]
    if words.count(words[0]) == len(words):
        return Group([words[0], *run[0::2]], line)
    if "+" not in words or "-" not in words:
        return Group(run, line)
    terms = zip(words, run[2::2], strict=True)
    return Group(["+", run[0], *(term if word == "+" else Group(["-", term], line) for word, term in terms)], line)


def normal_form(item: str | Group, line: int, scope: Scope) -> Normal:
    """The disjunction of conjunctions that a formula unfolds into."""
    if isinstance(item, str):
        return [(scope.comparison(item, line),)]
    if len(item.items) < 2:
        raise unknown(item, line)
    if item.head in scope.relations:
        return _comparison(item, scope)
    if item.head == "and" and all(type(part) is str for part in item.items):
        return [tuple([scope.comparison(str(part), item.line) for part in item.items[1:]])]
    parts = [normal_form(part, item.line, scope) for part in item.items[1:]]
    if item.head == "or":
        limit(sum(map(len, parts)), 0, item.line)
        return [atoms for part in parts for atoms in part]
    if item.head == "and":
        limit(math.prod(map(len, parts)), longest(parts), item.line)
        return [tuple(atom for atoms in choice for atom in atoms) for choice in product(*parts)]
    raise unknown(item, item.line)


def limit(count: int, coefficients: int, line: int) -> None:
    """Refuse `count` conjunctions of up to `coefficients` numbers each before they are made."""
    if count > MAX_CONJUNCTIONS:
        raise LingraftError(f"line {line}: unfolds into more than {MAX_CONJUNCTIONS:,} conjunctions.")
    if count > 1 and count * coefficients > MAX_COEFFICIENTS:
        raise LingraftError(f"line {line}: unfolds into more than {MAX_COEFFICIENTS:,} coefficients.")


def longest(parts: Sequence[Normal]) -> int:
    """Rows that a conjunction of one of each part has at most."""
    return sum(max(map(len, part), default=0) for part in parts)


def difference(group: Group, resolve: Resolve) -> tuple[dict[Variable, float], Fraction]:
    """Left minus right side of a comparison, exactly: factors, none of them 0, and the constant."""
    if len(group.items) != 3:
        raise LingraftError(f"line {group.line}: {group.head} takes two sides, not {len(group.items) - 1}.")
    left, right = (_term(side, group.line, resolve) for side in group.items[1:])
    total = _sum(left, [right], Fraction(-1))
    constant = total.pop(None, Fraction())
    terms = {variable: exactly(f, group.line) for variable, f in total.items() if f and variable is not None}
    if math.isinf(outward(constant, math.inf)) or math.isinf(outward(constant, -math.inf)):
        raise LingraftError(f"line {group.line}: a number is too large.")
    return terms, constant


def exactly(number: Fraction, line: int) -> float:
    """A factor as float64; one that would be rounded is refused, for it would be another property."""
    try:
        found = float(number)
    except OverflowError:
        raise LingraftError(f"line {line}: a number is too large.") from None
    if found != number:
        raise LingraftError(f"line {line}: a factor has more digits than float64. Write it as one number.")
    return found


def outward(number: Fraction, towards: float) -> float:
    """The float64 number nearest to a fraction on the side of ±infinity."""
    try:
        nearest = float(number)
    except OverflowError:
        nearest = math.inf if number > 0 else -math.inf
    if math.isinf(nearest):
        return nearest if (nearest > 0) == (towards > 0) else math.copysign(sys.float_info.max, nearest)
    wrong = Fraction(nearest) < number if towards > 0 else Fraction(nearest) > number
    return math.nextafter(nearest, towards) if wrong else nearest


def _comparison(group: Group, scope: Scope) -> Normal:
    terms, constant = difference(group, scope.resolve)
    if not terms and "==" not in scope.relations:
        raise LingraftError(f"line {group.line}: a constraint without variables.")
    if not terms:
        sign = (constant > 0) - (constant < 0)
        fulfilling = {"<=": (-1, 0), ">=": (0, 1), "<": (-1,), ">": (1,), "==": (0,), "!=": (-1, 1)}
        return [()] if sign in fulfilling[group.head] else []
    # a constant that must be rounded is rounded so that more points fulfil the constraint
    low, negative = (outward(side, -math.inf) for side in (constant, -constant))
    below = Atom(tuple(terms.items()), low, group.line)
    above = Atom(tuple((variable, -factor) for variable, factor in terms.items()), negative, group.line)
    match group.head:
        case "<=":
            return [(below,)]
        case ">=":
            return [(above,)]
        case "<":
            return [(below._replace(strict=True),)]
        case ">":
            return [(above._replace(strict=True),)]
        case "==":
            return [(below, above)]
        case _:  # !=
            return [(below._replace(strict=True),), (above._replace(strict=True),)]


def _term(item: str | Group, line: int, resolve: Resolve) -> _Linear:
    if isinstance(item, str):
        if _NUMBER.fullmatch(item):
            number = float(item)
            if math.isinf(number):
                raise LingraftError(f"line {line}: a number is too large.")
            return {None: Fraction(number)}
        variable = resolve(item, line)
        if variable is None:
            raise unknown(item, line)
        return {variable: Fraction(1)}
    parts = [_term(part, item.line, resolve) for part in item.items[1:]]
    if item.head == "+" and parts:
        return _sum({}, parts, Fraction(1))
    if item.head == "-" and parts:
        minus = Fraction(-1)
        return _sum({}, parts, minus) if len(parts) == 1 else _sum(parts[0], parts[1:], minus)
    if item.head == "*" and parts:
        total = parts[0]
        for part in parts[1:]:
            if _has_variables(total) and _has_variables(part):
                raise LingraftError(
                    f"line {item.line}: a product of variables is not linear; lingraft decides linear properties only."
                )
            values, factor = (total, part) if _has_variables(total) else (part, total)
            total = _sum({}, [values], factor.get(None, Fraction()))
        return total
    raise unknown(item, item.line)


def _has_variables(term: _Linear) -> bool:
    return any(variable is not None for variable in term)


def _sum(first: _Linear, others: Sequence[_Linear], factor: Fraction) -> _Linear:
    """first + factor·(all others)"""
    total = dict(first)
    for other in others:
        for variable, value in other.items():
            total[variable] = total.get(variable, Fraction()) + factor * value
    return total
