"""What is left to prove of a problem whose search was stopped, and its division into independent parts.

The domains of a search that are open when it stops cover all of the region that is not proven yet. Dealt out to parts,
together with the margins that no search has begun yet, each domain and each margin is in exactly one part: the problem
is proven when all parts are, and a counterexample in any part is one of the problem.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from lingraft.solver.bab import Pool
from lingraft.solver.collapse import Collapsed
from lingraft.solver.dual import Domains


@dataclass
class OpenMargin:
    """A margin that is not proven: the whole region as one domain, its bound (1,), and what of it is still open.

    Without a pool no search has begun, and all of the region is.
    """

    base: Domains
    bound: Tensor
    pool: Pool | None = None

    def divide(self, parts: int) -> "list[OpenMargin]":
        """At most so many with about equally many domains of every difficulty each."""
        if self.pool is None:
            return [self]
        order = self.pool.lowest()
        shares = [order[first::parts] for first in range(min(parts, len(order)))]
        return [replace(self, pool=self.pool.part(share)) for share in shares]


@dataclass
class Remainder:
    """Open margins of a collapsed network; `numbers` are those that its margins have in the problem."""

    collapsed: Collapsed
    numbers: Tensor
    margins: list[OpenMargin]

    def copy(self) -> "Remainder":
        """The same, with pools that a search can change."""
        pools = [None if m.pool is None else m.pool.part(m.pool.lowest()) for m in self.margins]
        return replace(self, margins=[replace(m, pool=pool) for m, pool in zip(self.margins, pools, strict=True)])

    def divide(self, parts: int) -> list[list[OpenMargin]]:
        """The open margins dealt out to at most so many parts."""
        pieces = [piece for margin in self.margins for piece in margin.divide(parts)]
        return [pieces[first::parts] for first in range(min(parts, len(pieces)))]
