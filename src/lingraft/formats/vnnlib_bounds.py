"""Bounds of inputs that follow from linear constraints between them, by propagation and by linear programs.

Everything that is given out is exact: a linear program only suggests by which multiples the constraints are to be
added, and the bound that their sum implies is computed with fractions and rounded outwards.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from lingraft.formats.vnnlib_formula import Atom, outward

#: Constraints with more terms than this in all are not used for bounds, those with more inputs not in linear programs.
MAX_TERMS, MAX_INPUTS = 20_000, 60
#: Times that the constraints are gone through.
ROUNDS = 10
#: Multiples are rounded to fractions with no larger denominators where an input has no bounds of its own.
DENOMINATOR = 1_000


def tighten(lower: np.ndarray, upper: np.ndarray, atoms: Sequence[Atom]) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of all inputs with the given ones (±inf if there is none) that fulfil the constraints between them.

    Where the lower is above the upper one, none does.
    """
    lower, upper = lower.copy(), upper.copy()
    if sum(len(atom.terms) for atom in atoms) <= MAX_TERMS:
        _propagate(lower, upper, atoms)
        inputs = sorted({variable for atom in atoms for variable, _ in atom.terms})
        if len(inputs) <= MAX_INPUTS and bool((lower <= upper).all()):
            _solve(lower, upper, atoms, inputs)
    return lower, upper


def _propagate(lower: np.ndarray, upper: np.ndarray, atoms: Sequence[Atom]) -> None:
    """One constraint after the other: what it leaves for an input when the others make its sum as small as they can."""
    for _ in range(ROUNDS):
        before = lower.copy(), upper.copy()
        for atom in atoms:
            ends = [lower[v] if factor > 0 else upper[v] for v, factor in atom.terms]
            parts = [
                Fraction(factor) * Fraction(float(end)) if math.isfinite(end) else None
                for (_, factor), end in zip(atom.terms, ends, strict=True)
            ]
            unbounded = sum(part is None for part in parts)
            if unbounded > 1:
                continue
            total = Fraction(atom.constant) + sum((part for part in parts if part is not None), Fraction())
            for (variable, factor), part in zip(atom.terms, parts, strict=True):
                if part is None or not unbounded:
                    _cut(lower, upper, variable, factor, -(total - (part or 0)) / Fraction(factor))
        if np.array_equal(before[0], lower) and np.array_equal(before[1], upper):
            break


def _cut(lower: np.ndarray, upper: np.ndarray, variable: int, factor: float, bound: Fraction) -> None:
    """x <= bound if the factor is positive, else x >= bound."""
    if factor > 0:
        upper[variable] = min(upper[variable], outward(bound, math.inf))
    else:
        lower[variable] = max(lower[variable], outward(bound, -math.inf))


def _solve(lower: np.ndarray, upper: np.ndarray, atoms: Sequence[Atom], inputs: list[int]) -> None:
    """The least and the largest value of each of these inputs."""
    from scipy.optimize import linprog  # slow to import, and few properties need it

    place = {variable: column for column, variable in enumerate(inputs)}
    rows, limits = np.zeros((len(atoms), len(inputs))), np.array([-atom.constant for atom in atoms])
    for row, atom in enumerate(atoms):
        for variable, factor in atom.terms:
            rows[row, place[variable]] = factor
    for variable in inputs:
        for sign in (1.0, -1.0):
            direction = np.zeros(len(inputs))
            direction[place[variable]] = sign
            ends = np.stack([lower[inputs], upper[inputs]], 1)
            found = linprog(direction, A_ub=rows, b_ub=limits, bounds=ends, method="highs")
            if found.status != 0:
                return
            multiples = np.maximum(-found.ineqlin.marginals, 0.0)
            bound = max(
                (_implied(lower, upper, atoms, variable, sign, some) for some in _fractions(multiples)),
                key=lambda value: -math.inf if value is None else value,
            )
            if bound is not None:
                _cut(lower, upper, variable, -sign, bound * int(sign))


def _fractions(multiples: np.ndarray) -> list[list[Fraction]]:
    exact = [Fraction(float(multiple)) for multiple in multiples]
    return [exact, [multiple.limit_denominator(DENOMINATOR) for multiple in exact]]


def _implied(
    lower: np.ndarray, upper: np.ndarray, atoms: Sequence[Atom], variable: int, sign: float, multiples: list[Fraction]
) -> Fraction | None:
    """What sign·x of an input is at least, by sign·x >= sign·x + Σ multiple·(constraint <= 0); None if nothing."""
    total = Fraction()
    terms: dict[int, Fraction] = {variable: Fraction(int(sign))}
    for atom, multiple in zip(atoms, multiples, strict=True):
        if multiple:
            total += multiple * Fraction(atom.constant)
            for other, factor in atom.terms:
                terms[other] = terms.get(other, Fraction()) + multiple * Fraction(factor)
    for other, share in terms.items():
        if share:
            end = float(lower[other] if share > 0 else upper[other])
            if math.isinf(end):
                return None
            total += share * Fraction(end)
    return total
