"""Is a claim true? Small networks as linear functions of the image and of their activations, in rational numbers.

A claim is false if one point of its region violates it, which is shown in rational numbers. Points come from corners,
from a search along single coordinates, and from mixed-integer programs. It is true if it follows from one that a
mixed-integer program has shown.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from exact import DOUBT, Evaluator, Unknown, rational
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

Array = np.ndarray


@dataclass
class Claim:
    """For all x with lower ≤ x ≤ upper (n,): in each group of rows, spec·y + offset > 0 in one row at least.

    All are fractions. Arrays are flat, in the order of the file.
    """

    lower: Array
    upper: Array
    spec: Array
    offset: Array
    group: int

    @property
    def key(self) -> tuple:
        return tuple(tuple(part.reshape(-1)) for part in (self.lower, self.upper, self.spec, self.offset)) + (
            self.group,
        )

    def value(self, outputs: Array) -> Array:
        """The least group's largest row (B,), for outputs (outputs, B)."""
        rows = self.spec @ outputs + self.offset[:, None]
        return rows.reshape(-1, self.group, rows.shape[1]).max(1).min(0)

    def follows_from(self, other: "Claim") -> bool:
        """Whether the other says at least as much, by its region and offsets."""
        same = self.group == other.group and self.spec.shape == other.spec.shape and (self.spec == other.spec).all()
        inside = (self.lower >= other.lower).all() and (self.upper <= other.upper).all()
        return bool(same and inside and (self.offset >= other.offset).all())


@dataclass
class Site:
    """Activations: the variables from `first` on are the largest of the rows of `players`, or slope·z if that is it."""

    first: int
    players: list[Array]
    slope: Any


@dataclass
class Small:
    """A network as rows over (inputs, activations, 1): of each activation, and of the outputs."""

    content: bytes
    sites: list[Site] = field(default_factory=list)
    known: dict[tuple, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        evaluator = Evaluator(self.content, exact=True)
        self.inputs = int(np.prod(evaluator.shape))
        counted = [self.inputs]

        def count(z: Array, *_: Any) -> Array:
            counted[0] += z[..., 0].size
            return z

        nothing = np.full((self.inputs, 1), Fraction(0), dtype=object)
        evaluator.run(nothing, nothing[0], count, lambda players: count(players[0]))
        self.width = counted[0] + 1
        self.next = self.inputs

        def bend(z: Array, slope: Any) -> Array:
            return self._new(z.shape, [z.reshape(-1, self.width)], slope)

        def largest(players: list[Array]) -> Array:
            return self._new(players[0].shape, [p.reshape(-1, self.width) for p in players], None)

        x = np.full((self.inputs, self.width), Fraction(0), dtype=object)
        x[np.arange(self.inputs), np.arange(self.inputs)] = Fraction(1)
        unit = np.full(self.width, Fraction(0), dtype=object)
        unit[-1] = Fraction(1)
        self.outputs = evaluator.run(x, unit, bend, largest)
        self.rooted = evaluator.rooted
        self.single = [[player.astype(float) for player in site.players] for site in self.sites]
        self.single_outputs = self.outputs.astype(float)

    def _new(self, shape: tuple[int, ...], players: list[Array], slope: Any) -> Array:
        count = len(players[0])
        self.sites.append(Site(self.next, players, slope))
        result = np.full((count, self.width), Fraction(0), dtype=object)
        result[np.arange(count), self.next + np.arange(count)] = Fraction(1)
        self.next += count
        return result.reshape(shape)

    def near(self, points: Array) -> Array:
        """Outputs (outputs, B) at points (B, n), in float64."""
        v = np.zeros((self.width, len(points)))
        v[: self.inputs], v[-1] = points.T, 1.0
        for site, players in zip(self.sites, self.single, strict=True):
            here = slice(site.first, site.first + len(players[0]))
            if site.slope is None:
                v[here] = np.max([player @ v for player in players], axis=0)
            else:
                z = players[0] @ v
                v[here] = np.where(z > 0, z, float(site.slope) * z)
        return self.single_outputs @ v

    def at(self, point: Array) -> Array:
        """Outputs (outputs, 1) at one point (n,) of fractions, exactly."""
        v = np.full(self.width, Fraction(0), dtype=object)
        v[: self.inputs], v[-1] = point, Fraction(1)
        for site in self.sites:
            here = slice(site.first, site.first + len(site.players[0]))
            values = [_products(player, v) for player in site.players]
            if site.slope is None:
                v[here] = np.max(values, axis=0)
            else:
                v[here] = [z if z > 0 else site.slope * z for z in values[0]]
        return _products(self.outputs, v)[:, None]

    # --- a claim ------------------------------------------------------------------------------------------------------

    def violation(self, claim: Claim, hints: Array | None = None) -> Array | None:
        """A point (n,) of fractions that violates a claim, by a search; None if none was found. Remembered."""
        key = claim.key
        if key not in self.known:
            if len(self.known) > 5000:
                self.known.clear()
            self.known[key] = self._search(claim, hints)
        return self.known[key]

    def violates(self, claim: Claim, point: Array) -> bool:
        """Whether a point of the region violates a claim, exactly."""
        if not ((claim.lower <= point) & (point <= claim.upper)).all():
            return False
        value = claim.value(self.at(point))[0]
        return bool(value <= (-DOUBT if self.rooted else 0))

    def _search(self, claim: Claim, hints: Array | None) -> Array | None:
        low, high = claim.lower.astype(float), claim.upper.astype(float)
        if not (low <= high).all() or not np.isfinite(low).all() or not np.isfinite(high).all():
            return None
        spec, offset = claim.spec.astype(float), claim.offset.astype(float)
        rng = np.random.default_rng(0)
        points = [
            np.where(rng.random((300, len(low))) < 0.5, low, high),
            low + rng.random((60, len(low))) * (high - low),
        ]
        if hints is not None:
            points.append(np.clip(hints, low, high))
        points = np.concatenate(points)

        def values(at: Array) -> Array:
            rows = spec @ self.near(at) + offset[:, None]
            return rows.reshape(-1, claim.group, rows.shape[1]).max(1).min(0)

        found = values(points)
        tolerance = 1e-9 * (1 + np.abs(spec).sum() + np.abs(offset).max())
        order = np.argsort(found)[:4]
        for start in order:
            point, value = points[start], found[start]
            for _ in range(12):
                if value < -tolerance:
                    break
                near = np.repeat(point[None], 3 * len(low), axis=0)
                each = np.arange(len(low))
                near[each, each], near[len(low) + each, each] = low, high
                near[2 * len(low) + each, each] = (point + (low + high) / 2) / 2
                tried = values(near)
                best = int(np.argmin(tried))
                if not tried[best] < value:
                    break
                point, value = near[best], tried[best]
            if value < tolerance:
                exact = self._inside(claim, point)
                if exact is not None and self.violates(claim, exact):
                    return exact
        return None

    def _inside(self, claim: Claim, point: Array) -> Array | None:
        """The point as fractions, in the region."""
        exact = rational(point)
        exact = np.where(exact < claim.lower, claim.lower, exact)
        return np.where(exact > claim.upper, claim.upper, exact)

    def least(self, claim: Claim, seconds: float = 10.0) -> tuple[float, Array]:
        """About the least value of a claim, and the point (n,) of fractions where it is, by mixed-integer programs."""
        found = [self._program(claim, g, seconds) for g in range(len(claim.offset) // claim.group)]
        return min(found, key=lambda pair: pair[0])

    def _program(self, claim: Claim, number: int, seconds: float) -> tuple[float, Array]:
        """Variables: inputs, activations, 1, the value, then what is decided for each activation."""
        low, high = np.full(self.width, -np.inf), np.full(self.width, np.inf)
        low[: self.inputs], high[: self.inputs] = claim.lower.astype(float), claim.upper.astype(float)
        low[-1] = high[-1] = 1.0
        rows: list[tuple[dict[int, float], float]] = []  # Σ coefficient·variable ≥ bound
        binaries, ones = 0, []
        for site, players in zip(self.sites, self.single, strict=True):
            bounds = [_interval(player, low, high) for player in players]
            for i in range(len(players[0])):
                h = site.first + i
                forms = [dict(zip(np.flatnonzero(p[i]), p[i][p[i] != 0], strict=True)) for p in players]
                reach = [(b[0][i], b[1][i]) for b in bounds]
                if site.slope is not None:
                    slope = float(site.slope)
                    if not 0 <= slope < 1:
                        raise Unknown("a slope")
                    forms.append({k: slope * w for k, w in forms[0].items()})
                    reach.append((slope * reach[0][0], slope * reach[0][1]))
                low[h], high[h] = max(r[0] for r in reach), max(r[1] for r in reach)
                chosen = []
                for form, (least, _) in zip(forms, reach, strict=True):
                    rows.append((_minus({h: 1.0}, form), 0.0))
                    # h ≤ form + (1 − chosen)·M
                    gap = max(high[h] - least, 0.0)
                    place = self.width + 1 + binaries
                    rows.append(({**_minus(form, {h: 1.0}), place: -gap}, -gap))
                    chosen.append(place)
                    binaries += 1
                ones.append(chosen)
        value = self.width
        spec = claim.spec.astype(float) @ self.single_outputs
        for j in range(number * claim.group, (number + 1) * claim.group):
            form = dict(zip(np.flatnonzero(spec[j]), spec[j][spec[j] != 0], strict=True))
            rows.append((_minus({value: 1.0}, form), float(claim.offset[j])))
        total = self.width + 1 + binaries
        entries = [(r, c, w) for r, (row, _) in enumerate(rows) for c, w in row.items()]
        matrix = sparse.csr_matrix(
            ([w for *_, w in entries], ([r for r, *_ in entries], [c for _, c, _ in entries])), shape=(len(rows), total)
        )
        which = np.repeat(np.arange(len(ones)), [len(chosen) for chosen in ones])
        places = [place for chosen in ones for place in chosen]
        sums = sparse.csr_matrix((np.ones(len(places)), (which, places)), shape=(len(ones), total))
        cost = np.zeros(total)
        cost[value] = 1.0
        result = milp(
            cost,
            constraints=[
                LinearConstraint(matrix, [b for _, b in rows], np.inf),
                *([LinearConstraint(sums, 1, 1)] if ones else []),
            ],
            bounds=Bounds(
                np.concatenate([low, [-np.inf], np.zeros(binaries)]),
                np.concatenate([high, [np.inf], np.ones(binaries)]),
            ),
            integrality=np.concatenate([np.zeros(self.width + 1), np.ones(binaries)]),
            options={"time_limit": seconds, "mip_rel_gap": 1e-9},
        )
        if result.x is None or result.status != 0:
            raise Unknown(f"no minimum: {result.message}")
        point = self._inside(claim, result.x[: self.inputs])
        assert point is not None
        return float(result.fun), point


def _products(rows: Array, v: Array) -> Array:
    """rows @ v without the many zeros."""
    result = np.empty(len(rows), dtype=object)
    for i, row in enumerate(rows):
        used = np.flatnonzero(row)
        result[i] = sum((row[k] * v[k] for k in used), Fraction(0))
    return result


def _minus(a: dict[int, float], b: dict[int, float]) -> dict[int, float]:
    result = dict(a)
    for key, value in b.items():
        result[key] = result.get(key, 0.0) - value
    return result


def _interval(rows: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Bounds of linear functions; variables that have none yet have no coefficients."""
    used = np.isfinite(low)
    positive, negative = np.maximum(rows[:, used], 0), np.minimum(rows[:, used], 0)
    return positive @ low[used] + negative @ high[used], positive @ high[used] + negative @ low[used]
