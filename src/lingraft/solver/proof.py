"""What a proof consists of: everything that is needed to compute its bounds again, and nothing else.

Per margin, over the taps of the collapsed network, in the order in which it came about:

- `facets`, if any, bound the ReLUs h of the first taps by functions of the image (`facets.py`): in rounds, clips and
  leaves, an open tap with coefficient q < 0 on h uses α·q·(G·x + g), and its chord for the rest of q;
- `rounds` tighten the bounds of taps over the whole region (`tighten.py`); each uses the bounds after the ones before;
- `forms` are linear functions below z and −z of taps (`clip.py`), from the bounds after `in_force` rounds, not facets;
- `splits` make the tree: node 0 is the whole region, a split at a tap gives the node of z ≥ 0 and the node of z ≤ 0;
- `clips` tighten the bounds of a node, and so of all nodes below it: the multipliers bound the margin by p·x + c, and
  every tap of a group gets, on each side, the best of b + γc − ‖a + γp‖₁ for γ = k·‖a‖₁ / ‖p‖₁ on the pixels of the
  group, k in `GRID`, from its form a·x + b;
- `leaves` are bounded above 0 with their multipliers; `empty` ones have a tap whose bounds cross.

The bounds of a node are those after the rounds that were in force, its splits, the clips of the nodes above it, and its
own if it has one (a leaf with a clip is bounded after it). Rounds, clips and leaves only speak about x with margin ≤ 0:
a counterexample is one. Multipliers are α = k/255 (uint8) and β ≥ 0, where β may stand at any tap that the
bounds of its node put on one side: −β·z if lower ≥ 0, else +β·z if upper ≤ 0. All bounds of taps, as soon as they are
known, are widened to float32 numbers (`dual.outward`); float64 ones in a search in float64.

Margins that were proven by cutting the region into boxes (`boxes.py`) have one tree together: node 0 is the region, a
cut gives the node of x ≤ point and the node of x ≥ point. Bounds of a box are CROWN's and need no multipliers, only the
shares of functions where a margin is the largest of several. A box that was bounded is done, or what its functions show
to have no counterexample was clipped off before it was cut.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from lingraft.solver.dual import STEPS_OF_ALPHA, Domains


@dataclass
class Shares:
    """Facets of the first taps: G, entry by entry, is a share of W at `tap`, `pixel` (E,), of so many steps (E,).

    W·x + w is above z over the whole region, before any round: what CROWN gives with `slopes` (T,) below the taps.
    """

    tap: Tensor
    pixel: Tensor
    share: Tensor
    slopes: Tensor


@dataclass
class Round:
    """Bounds of `taps` (K,): of z from below in the first K columns of α (T, 2K) and γ (2K,), of −z in the others."""

    taps: Tensor
    alpha: Tensor
    gamma: Tensor


@dataclass
class UsedForms:
    """Forms with lower slopes α (T,), over bounds after `in_force` rounds; `group` (T,) is −1 where there is none."""

    in_force: int
    alpha: Tensor
    group: Tensor


@dataclass
class Split:
    """Nodes (B,) that were split at taps (B,): their sides z ≥ 0 are nodes `first` …, then come the sides z ≤ 0."""

    nodes: Tensor
    taps: Tensor
    first: int


@dataclass
class Bounded:
    """Nodes (B,) and their multipliers: α (T, B), and β (R, B) at taps `rows` (R,)."""

    nodes: Tensor
    in_force: int
    alpha: Tensor
    rows: Tensor
    beta: Tensor


@dataclass
class Clip(Bounded):
    """Bounded nodes, and which of the `forms` they were clipped with."""

    forms: int


@dataclass
class MarginProof:
    """The proof of one of the problem's margins, or of `unit` times that, which β and γ are then about."""

    margin: int
    unit: float = 1.0
    facets: Shares | None = None
    rounds: list[Round] = field(default_factory=list)
    forms: list[UsedForms] = field(default_factory=list)
    splits: list[Split] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    leaves: list[Bounded] = field(default_factory=list)
    empty: list[tuple[Tensor, int]] = field(default_factory=list)

    def bounded(self, domains: Domains) -> Bounded:
        """The multipliers of some domains, as they are now."""
        rows = domains.beta.any(1).nonzero().flatten()
        return Bounded(domains.node, len(self.rounds), whole(domains.alpha), rows, domains.beta[rows])

    def close(self, domains: Domains) -> None:
        """These domains are proven with the multipliers that they have."""
        if len(domains):
            self.leaves.append(self.bounded(domains))

    def close_empty(self, domains: Domains) -> None:
        """These domains have no point."""
        if len(domains):
            self.empty.append((domains.node, len(self.rounds)))


@dataclass
class Cut:
    """Boxes `nodes` (B,), cut at points (B,) of inputs (B,): lower halves are nodes `first` …, then come the others."""

    nodes: Tensor
    inputs: Tensor
    points: Tensor
    first: int


@dataclass
class BoundedBoxes:
    """Boxes `nodes` (B,) that are done or clipped, and the shares (B, L, K) of functions by which they were."""

    nodes: Tensor
    shares: Tensor


@dataclass
class BoxProof:
    """The proof of some of the problem's margins together, by cuts of the region."""

    margins: list[int]
    cuts: list[Cut] = field(default_factory=list)
    done: list[BoundedBoxes] = field(default_factory=list)
    clipped: list[BoundedBoxes] = field(default_factory=list)

    def keep(self, nodes: Tensor, left: Tensor, clipped: Tensor, shares: Tensor) -> None:
        """Boxes (B,) were bounded: some are `left` to be cut, some of these `clipped`, the others are done."""
        self.done.append(BoundedBoxes(nodes[~left], shares[~left]))
        self.clipped.append(BoundedBoxes(nodes[left & clipped], shares[left & clipped]))


@dataclass
class Proof:
    """Proofs of the margins that CROWN's default bounds do not prove, and the taps: position of a site, index (U,)."""

    sites: list[tuple[int, Tensor]] = field(default_factory=list)
    margins: list[MarginProof] = field(default_factory=list)
    boxes: BoxProof | None = None


def whole(alpha: Tensor) -> Tensor:
    """α as a whole number of steps."""
    return (alpha * STEPS_OF_ALPHA).round().to(torch.uint8)
