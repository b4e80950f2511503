"""A prover of its own, slow and simple, so that proofs of every form can be had without the verifier."""

import numpy as np

from lingraft.checker.bounds import Bounds
from lingraft.checker.check import question, region
from lingraft.checker.clip import clip, make_groups
from lingraft.checker.collapse import Collapsed, collapse
from lingraft.checker.dual import Columns, below, margin, signed_taps
from lingraft.checker.format import EMPTY, LEAF, PARTS, TYPES, Certificate, Tree, tree_of
from lingraft.checker.network import Network, inner_places


def prove(network: Network, claim: Certificate, rounds: int = 1, clips: bool = True) -> Certificate | None:
    """The claim with its proof, None if none is found."""
    try:
        return Prover(network, claim, rounds, clips).claim
    except Unproven:
        return None


class Unproven(Exception):
    """The prover gives up."""


class Prover:
    """Proves the margins of a claim by default bounds where possible, else by trees with rounds and clips."""

    def __init__(self, network: Network, claim: Certificate, rounds: int = 1, clips: bool = True, limit: int = 400):
        self.claim, self.rounds, self.clips, self.limit = claim, rounds, clips, limit
        self.network, spec, offset = question(claim, network)
        found = Bounds(self.network, *region(claim, network))
        left = [i for i, value in enumerate(found.margins(spec, offset)) if not value > 0]
        claim.taps, claim.trees = {}, []
        if not left:
            return
        self.of = collapse(found, {}, spec[left], offset[left])
        for node, numbers in self.of.numbers.items():
            shape = numbers.shape
            places = np.argsort(inner_places((shape[2], *shape[:2]) if len(shape) == 3 else shape))
            chosen = places[np.flatnonzero(numbers.reshape(-1))].astype(np.int32)
            if len(chosen):
                claim.taps[self.network.nodes[node].number] = chosen
        claim.trees = [self._tree(column, i) for column, i in enumerate(left)]

    def _tree(self, column: int, number: int) -> Tree:
        of, goal = self.of, margin(self.of, column)
        lower, upper = of.lower.copy(), of.upper.copy()
        parts: dict[str, list] = {name: [] for name, _, _ in PARTS}
        taps, sides = np.repeat(np.arange(of.count), 2), np.tile([1, -1], of.count)
        for _ in range(self.rounds):
            alpha = np.tile(_usual(lower, upper), (len(taps), 1))
            rows = signed_taps(of, taps, sides.astype(float), np.full(len(taps), 0.25), goal)
            value = below(of, rows, lower[:, None], upper[:, None], alpha.T / 255, None).bound
            np.maximum.at(lower, taps[sides > 0], value[sides > 0])
            np.minimum.at(upper, taps[sides < 0], -value[sides < 0])
            parts["rounds.sizes"].append(len(taps))
            parts["rounds.taps"] += list(taps)
            parts["rounds.sides"] += list(sides)
            parts["rounds.gamma"] += [0.25] * len(taps)
            parts["rounds.alpha"] += list(alpha)
        self.parts, self.goal = parts, goal
        if self.clips:
            parts["clips.forms_in_force"], parts["clips.forms_alpha"] = [self.rounds], [_usual(lower, upper)]
            parts["clips.groups"], parts["clips.grid"] = [np.arange(of.count) % 3 - 1], [0.5, 2.0]
            slopes = _usual(lower, upper) / 255
            self.groups = make_groups(of, np.arange(of.count) % 3 - 1, lower, upper, slopes)
        self._grow(lower, upper, [])
        kinds = {name: np.dtype(TYPES[kind]) for name, kind, _ in PARTS}
        arrays = {
            name: np.array(parts[name], kinds[name]).reshape((-1, of.count) if rank == 2 else -1)
            for name, _, rank in PARTS
        }
        return tree_of(number, arrays)

    def _record(self, prefix: str, alpha: np.ndarray, beta: np.ndarray, path: list) -> None:
        self.parts[f"{prefix}.alpha"].append(alpha)
        self.parts[f"{prefix}.sizes"].append(len(path))
        self.parts[f"{prefix}.taps"] += [tap for tap, _ in path]
        self.parts[f"{prefix}.beta"] += list(beta)

    def _grow(self, lower: np.ndarray, upper: np.ndarray, path: list) -> None:
        nodes, of = self.parts["nodes"], self.of
        if len(nodes) > self.limit:
            raise Unproven
        if (lower > upper).any():
            nodes.append(EMPTY)
            self.parts["in_force"].append(self.rounds)
            return
        alpha, beta, value, row = self._multipliers(of, self.goal, lower, upper, path)
        if value > 1e-9:
            nodes.append(LEAF)
            self.parts["in_force"].append(self.rounds)
            self._record("multipliers", alpha, beta, path)
            return
        if self.clips and len(path) % 2:
            self._record("clips.multipliers", alpha, beta, path)
            for name, number in (("nodes", len(nodes)), ("in_force", self.rounds), ("forms", 0)):
                self.parts[f"clips.{name}"].append(number)
            low, high = lower[:, None].copy(), upper[:, None].copy()
            clip(of, self.groups, [0.5, 2.0], row, low, high)
            lower, upper = low[:, 0], high[:, 0]
        score = np.where((lower < 0) & (upper > 0), np.minimum(upper, -lower), -1)
        tap = int(score.argmax())
        if (lower > upper).any():
            tap, score[0] = 0, 1.0
        if score[tap] <= 0:
            raise Unproven
        nodes.append(tap)
        here = np.arange(of.count) == tap
        self._grow(np.where(here, np.maximum(lower, 0.0), lower), upper, [*path, (tap, 1)])
        self._grow(lower, np.where(here, np.minimum(upper, 0.0), upper), [*path, (tap, -1)])

    def _multipliers(self, of: Collapsed, goal: Columns, lower: np.ndarray, upper: np.ndarray, path: list):
        """α (bytes), β, their bound and the function below, after some steps of ascent with numerical gradients."""
        taps = np.array([t for t, _ in path], int)

        def row(values: np.ndarray):
            push = np.zeros((of.count, values.shape[1]))
            side = np.where(lower[taps] >= 0, 1.0, np.where(upper[taps] <= 0, -1.0, 0.0))
            np.add.at(push, taps, side[:, None] * values[of.count :])
            return below(of, goal, lower[:, None], upper[:, None], values[: of.count], push)

        def bounds(values: np.ndarray) -> np.ndarray:
            return row(values).bound

        best = values = np.concatenate([_usual(lower, upper) / 255, np.zeros(len(path))])
        top = bounds(best[:, None])[0]
        for step in range(25):
            if top > 1e-6:
                break
            nearby = values[:, None] + 1e-5 * np.eye(len(values))
            slope = bounds(nearby) - bounds(values[:, None])[0]
            values = values + 0.5 * 0.85**step * slope / max(np.abs(slope).max(), 1e-12)
            values[: of.count] = values[: of.count].clip(0, 1)
            values[of.count :] = values[of.count :].clip(0, None)
            value = bounds(values[:, None])[0]
            best, top = (values, value) if value > top else (best, top)
        alpha, beta = (best[: of.count] * 255).round().astype(np.uint8), best[of.count :].astype(np.float32)
        rounded = np.concatenate([alpha / 255, beta.astype(float)])
        found = row(rounded[:, None])
        return alpha, beta, found.bound[0], found


def _usual(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    return ((upper > -lower) * 255).astype(np.uint8)
