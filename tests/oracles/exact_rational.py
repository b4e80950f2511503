"""An oracle in rational numbers for fully connected networks of one input."""

from fractions import Fraction

import numpy as np

#: Weight and bias of each layer, with ReLU between layers.
Layers = list[tuple[np.ndarray, np.ndarray]]


class Exact:
    """Rational arithmetic on a fully connected network of one input: no rounding anywhere."""

    def __init__(self, layers: Layers):
        self.layers = [
            (
                [[Fraction(float(w)) for w in row] for row in weight.astype(np.float32)],
                [Fraction(float(b)) for b in bias.astype(np.float32)],
            )
            for weight, bias in layers
        ]

    def minima(self, low: float, high: float) -> list[Fraction]:
        """The smallest value of each output for low ≤ x ≤ high: all are linear between the points of `_pieces`."""
        pieces = self._pieces(Fraction(low), Fraction(high))
        return [
            min(a * x + b for left, right, lines in pieces for a, b in [lines[i]] for x in (left, right))
            for i in range(len(pieces[0][2]))
        ]

    def values(self, x: Fraction) -> list[list[Fraction]]:
        """What every layer gives before its ReLU."""
        found, h = [], [x]
        for weight, bias in self.layers:
            found.append(
                [sum((w * v for w, v in zip(row, h, strict=True)), b) for row, b in zip(weight, bias, strict=True)]
            )
            h = [max(v, Fraction(0)) for v in found[-1]]
        return found

    def where_not_positive(self, low: float, high: float, output: int) -> list[Fraction]:
        """Points between low and high at which an output is ≤ 0: all ends of the intervals where everything is linear."""
        points = []
        for left, right, lines in self._pieces(Fraction(low), Fraction(high)):
            a, b = lines[output]
            ends = [left, right] + ([-b / a] if a and left < -b / a < right else [])
            points += [x for x in ends if a * x + b <= 0]
        return points

    def _pieces(self, low: Fraction, high: Fraction):
        pieces = [(low, high, [(Fraction(1), Fraction(0))])]
        for number, (weight, bias) in enumerate(self.layers):
            new = []
            for left, right, lines in pieces:
                out = [
                    (
                        sum(w * a for w, (a, _) in zip(row, lines, strict=True)),
                        sum((w * b for w, (_, b) in zip(row, lines, strict=True)), shift),
                    )
                    for row, shift in zip(weight, bias, strict=True)
                ]
                if number == len(self.layers) - 1:
                    new.append((left, right, out))
                    continue
                cuts = sorted({left, right} | {-b / a for a, b in out if a and left < -b / a < right})
                for start, end in zip(cuts, cuts[1:] or cuts, strict=False):
                    middle = (start + end) / 2
                    new.append(
                        (start, end, [(a, b) if a * middle + b > 0 else (Fraction(0), Fraction(0)) for a, b in out])
                    )
            pieces = new
        return pieces
