"""What work on a domain is worth: the seconds that it saves, by what splits were seen to gain and to cost.

The *need* of a domain is how far its bound is below 0. If a split takes away g of the need of both halves and costs t
seconds, a domain with need d takes about n = d / g splits in a row, and its whole tree

    seconds(d) = t·(2ⁿ − 1)

A step on its multipliers, or tighter bounds of its taps, that leave it with need d′ save seconds(d) − seconds(d′), and
are done as long as that is more than they cost. So much is done for domains that are far from proven, and little for
those that the next split will prove. The measurements are of this image alone, so that they fit its network.
"""

from dataclasses import dataclass
from math import inf, log, log2

import torch
from torch import Tensor

#: What is measured counts half as much this many batches later, since domains change as a search goes deeper.
HALF_LIFE = 8

#: No tree is taken to be deeper than this: more would be made of a guess than it is worth.
DEEPEST = 8

#: Steps that a split is taken to cost before one was measured: its candidates are bounded, and two halves are improved.
STEPS_OF_A_SPLIT = 25

#: What clipping saves counts this many times: tighter bounds stay in the whole tree below, where splits gain more.
LASTING = 2

#: Batches between two tries of clipping where it does not pay, and margins between two tries of facets: that is a small
#: share of all then, whatever it costs.
LONGEST_PAUSE = 31

#: Tightening is done for taps that, by what it gained so far, give this many times what is missing.
SURPLUS = 2

#: Twice as many domains at once must be cheaper by this factor, and dearer by this one to go back: what is between is
#: noise. A batch takes no more seconds than that, since a search that shall be divided ends between two batches.
FASTER, SLOWER, LONGEST = 1.05, 1.3, 2.0


def need(bounds: Tensor) -> Tensor:
    """How far bounds are below 0."""
    return -bounds.clamp(max=0)


@dataclass
class Tally:
    """How often something was done of late, the seconds it took, and what it gained."""

    count: float = 0.0
    seconds: float = 0.0
    gain: float = 0.0

    def add(self, count: float, seconds: float, gain: float = 0.0) -> None:
        """Count some more."""
        keep = 0.5 ** (1 / HALF_LIFE)
        self.count, self.seconds = keep * self.count + count, keep * self.seconds + seconds
        self.gain = keep * self.gain + gain

    @property
    def price(self) -> float:
        """Seconds for one."""
        return self.seconds / self.count if self.count else 0.0


class Pause:
    """Whether to do something that pays for some networks only: always while it pays, else now and then, to see."""

    def __init__(self) -> None:
        self.length = self.waiting = 0

    def over(self) -> bool:
        """Whether to do it this time."""
        if self.waiting:
            self.waiting -= 1
            return False
        return True

    def tried(self, pays: bool) -> None:
        """Count that it was done; where it did not pay, the next time is later, and later each time."""
        self.length = 0 if pays else min(2 * self.length + 1, LONGEST_PAUSE)
        self.waiting = self.length


class Worth:
    """What splits, with all that follows them, cost and gained so far; steps; clipping; and batches.

    The searches for all margins of an image share one: they are alike. `widest` is how many domains fit at once.
    """

    def __init__(self, widest: int) -> None:
        self.splits, self.clips = Tally(), Tally()
        #: rounds of tightening: what the taps' relaxations cost the bound, and what it gained
        self.rounds = Tally()
        self.batch = Batch(widest)
        self.clipping, self.facets = Pause(), Pause()
        #: where tightening of a tap begins: margins bend at much the same taps (`tighten.Starts`)
        self.starts: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def _split_gain(self, missing: Tensor) -> Tensor:
        """What a split gains (B,), at most what is missing (B,): a domain that needs less is proven by it."""
        gain = torch.full_like(missing, torch.inf)
        if self.splits.count:
            gain = torch.full_like(missing, max(0.0, self.splits.gain / self.splits.count))
        return torch.maximum(torch.minimum(gain, missing), missing / DEEPEST).clamp(min=1e-30)

    def seconds(self, bounds: Tensor, gain: Tensor | None = None) -> Tensor:
        """About how long (B,) the trees of domains with these bounds (B,) take; `gain` is that of a split of each."""
        missing = need(bounds).double()
        gain = self._split_gain(missing) if gain is None else gain
        return self.splits.price * ((missing / gain).clamp(max=DEEPEST).exp2() - 1)

    def step(self, bounds: Tensor) -> Tensor:
        """What a step must gain (B,) in domains with these bounds (B,) to save as much time as it takes.

        A step of few domains at once costs each of them more than one of many: the last ones are the first to end.
        """
        missing = need(bounds)
        gain = self._split_gain(missing)
        price = 1 / STEPS_OF_A_SPLIT
        if self.splits.price:
            price = self.batch.price(len(bounds)) / self.splits.price
        return price * gain / (log(2) * (missing / gain).exp2())

    def levels(self, bounds: Tensor) -> int:
        """How often to split domains with these bounds (B,) before any is bounded again.

        More than once if a batch would not be full, and all of them need more splits than one, by what splits gained.
        """
        fit = self.batch.size // len(bounds)
        if fit < 2 or not self.splits.count:
            return 1
        missing = need(bounds).double()
        splits = (missing / self._split_gain(missing)).nan_to_num(0.0)  # what has overflowed tells nothing
        return max(1, int(splits.min().clamp(max=fit.bit_length())))

    def to_tighten(self, scores: Tensor, bound: Tensor, most: int) -> int:
        """How many of the costliest taps to tighten, given what the relaxation of each (T,) costs a bound (1,)."""
        top = scores.topk(min(most, int(torch.isfinite(scores).sum()))).values
        if self.rounds.gain <= 0:
            return len(top)
        gained = top.double().cumsum(0) * self.rounds.gain / self.rounds.count
        return min(len(top), 1 + int((gained < SURPLUS * need(bound).double()).sum()))

    def clipped(self, before: Tensor, after: Tensor, seconds: float) -> None:
        """Count the clipping of domains with the bounds `before` (B,) and `after` (B,).

        It pays while the last ones saved as much time as they took.
        """
        gain = self._split_gain(need(before).double())
        saved = self.seconds(before, gain) - self.seconds(after, gain)
        self.clips.add(len(before), seconds, float(saved.sum()))
        self.clipping.tried(not self.splits.count or LASTING * self.clips.gain >= self.clips.seconds)


class Batch:
    """How many domains to split at once: twice as many as long as that makes a step on one of them clearly cheaper.

    Steps are what splitting takes longest for, and, unlike splits, cost about the same for every domain of an image.
    """

    def __init__(self, most: int):
        self.size, self.most = min(8, most), most
        #: by how many domains, in powers of two, move at once: the least seconds that a step of one took
        self.prices: dict[int, float] = {}

    def stepped(self, count: int, seconds: float) -> None:
        """Count a step of `count` domains."""
        self.prices[_width(count)] = min(self.prices.get(_width(count), inf), seconds / count)

    def price(self, count: int) -> float:
        """Seconds of a step for each of `count` domains that make it at once; 0 before any was measured."""
        width = min(self.prices, key=lambda known: abs(known.bit_length() - count.bit_length()), default=None)
        return 0.0 if width is None else self.prices[width]

    def add(self, seconds: float) -> None:
        """Count a batch; each of its domains has two halves, which make steps."""
        fewer, now = self.prices.get(self.size, inf), self.prices.get(2 * self.size)
        if seconds > LONGEST:
            self.most = self.size = max(1, self.size // 2)
        elif now is None:  # it was not full, or all that it had were proven at once
            return
        elif now > SLOWER * fewer:
            self.size = max(1, self.size // 2)
        elif FASTER * self.prices.get(4 * self.size, 0.0) < now < fewer / FASTER and 2 * seconds < LONGEST:
            self.size = min(2 * self.size, self.most)


def _width(count: int) -> int:
    """The power of two that a count is nearest to, as a factor.

    Not the one below it: at the end of a batch of 32 there are often 29 left, whose price is that of 32, not of 16.
    """
    return 1 << round(log2(count))
