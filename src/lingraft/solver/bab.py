"""Branch and bound over the collapsed network for one margin (β-CROWN, Wang et al. 2021); domains live in tensors."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from lingraft.solver.ascent import RATE, improve
from lingraft.solver.branching import scores, split, taps_to_split
from lingraft.solver.budget import Budget, Exhausted
from lingraft.solver.clip import OWN_FORMS, Forms, clip_by_own_forms
from lingraft.solver.clock import worked
from lingraft.solver.collapse import Collapsed
from lingraft.solver.columns import columns_of
from lingraft.solver.dual import Domains, Dual, Evaluation, Row
from lingraft.solver.facets import Above, fit, fit_pooled, in_full
from lingraft.solver.largest import LAST
from lingraft.solver.leaf import solve_leaf
from lingraft.solver.margin import MARGIN, proven
from lingraft.solver.proof import Clip, MarginProof, Split, UsedForms, whole
from lingraft.solver.tighten import tighten
from lingraft.solver.worth import Worth, need

#: The search for multipliers stops at a bound of this, a little more than `MARGIN`.
ENOUGH = 1e-4

#: Steps on the multipliers of the region, each time that something about it has changed.
REGION_STEPS = 12

#: Steps on the multipliers of a domain at most; they end when splitting is worth more (`worth.py`).
MOST_STEPS = 40

#: Taps whose bounds are tightened in one round, and the steps on their multipliers.
TIGHTENED, TIGHTENING_STEPS = 60, 6

#: Rounds of tightening become rarer when they gain less than this share.
WORTHWHILE = 0.01

#: Facets, which make a step on the multipliers slower, are used if they raise the bound of the region by this share.
WORTHWHILE_FACETS = 0.05


class Attack(Protocol):
    """Looks for a witness near points (N, n) in the inner order, real pixels."""

    def __call__(self, points: Tensor, last: bool = False) -> Tensor | None:
        """A witness or None. Whoever calls gives up without one if it is the `last` call."""
        ...


class Falsified(Exception):
    """A witness was found during the search."""

    def __init__(self, witness: Tensor):
        super().__init__("falsified")
        self.witness = witness


class Pool:
    """Open domains and their bounds; multipliers are kept in half precision, as they only start the next search.

    Places of domains that were taken out are used again, so that taking and adding cost as much as the batch, not as
    the pool.
    """

    def __init__(self, bounds: Tensor, domains: Domains):
        #: of each place (S,) the bound of the domain there, infinite where there is none
        self.bounds = _finite(bounds)
        self.domains = _small(domains)

    def __len__(self) -> int:
        return int(self._used.sum())

    @property
    def _used(self) -> Tensor:
        return self.bounds < torch.inf

    def add(self, bounds: Tensor, domains: Domains) -> None:
        """Put domains in, with their bounds."""
        small = _small(domains)
        free = (~self._used).nonzero().flatten()
        if len(free) < len(bounds):
            more = max(len(bounds), len(self.bounds))
            free = torch.cat([free, len(self.bounds) + torch.arange(more, device=bounds.device)])
            self.bounds = torch.cat([self.bounds, bounds.new_full((more,), torch.inf)])
            empty = small.select(torch.zeros(more, dtype=torch.long, device=bounds.device))
            self.domains = Domains.join([self.domains, empty]) if len(self.domains) else empty
        places = free[: len(bounds)]
        self.bounds[places] = _finite(bounds)
        self.domains.put(places, small)

    def lowest(self) -> Tensor:
        """The places (N,) of all domains, those with the lowest bounds first."""
        return self.bounds.argsort()[: len(self)]

    def take(self, count: int) -> Domains:
        """Take the `count` domains with the lowest bounds out."""
        places = self.bounds.topk(min(count, len(self)), largest=False).indices
        result = self.domains.select(places).to(self.domains.lower.dtype)
        self.bounds[places] = torch.inf
        return result

    def part(self, places: Tensor) -> "Pool":
        """A copy of some of it."""
        return Pool(self.bounds[places], self.domains.select(places))

    def restrict(self, base: Domains) -> None:
        """Apply tighter bounds of the whole region to every domain."""
        self.domains.lower = torch.maximum(self.domains.lower, base.lower)
        self.domains.upper = torch.minimum(self.domains.upper, base.upper)

    @property
    def size(self) -> float:
        """Bytes in use."""
        return len(self.bounds) * len(self.domains.lower) * (2 * self.domains.lower.element_size() + 1 + 3 * 2)


def _small(domains: Domains) -> Domains:
    """The domains with their multipliers in half precision."""
    most = torch.finfo(torch.half).max
    beta = domains.beta.clamp(-most, most).half()
    return replace(domains, alpha=domains.alpha.half(), share=domains.share.half(), beta=beta)


def _finite(bounds: Tensor) -> Tensor:
    """Bounds in whose place the largest number stands where they are infinite or undefined: those are open, too."""
    return bounds.nan_to_num(nan=torch.finfo(bounds.dtype).max)


class Stopped(Exception):
    """The search was stopped because somebody asked for it.

    `pool` holds all that is not proven yet, `base` is the whole region with what was found out about it.
    """

    def __init__(self, pool: Pool, base: Domains):
        super().__init__("stopped")
        self.pool, self.base = pool, base


class Search:
    """Splits the domains of one margin until all are proven; raises Falsified or Exhausted.

    What it did is written into `proof`, if there is one. `above` makes what the facets of all margins share. When
    `stop` says so, and there are open domains to share out, it raises Stopped.
    """

    def __init__(
        self,
        collapsed: Collapsed,
        dual: Dual,
        exact: Dual,
        budget: Budget,
        attack: Attack,
        proof: MarginProof | None = None,
        stop: Callable[[], bool] | None = None,
        branching: str = "smart",
        worth: Worth | None = None,
        above: Callable[[], Above] | None = None,
    ):
        self.collapsed, self.dual, self.exact = collapsed, dual, exact
        self.device = collapsed.center.device
        self.branching_rule = branching
        self.budget, self.attack, self.proof, self.stop = budget, attack, proof, stop
        self.above = above or partial(Above, collapsed, budget)
        self.forms: Forms | None = None
        self.visited = 0
        #: the lowest bound of what is open; 0 where nothing is, None before the search
        self.lowest: float | None = None
        #: domains fit that many at once, at about thirty tensors over taps and pixels each
        self.widest = int(min(1024, max(1, budget.memory / 4 / (30 * 4 * (collapsed.count + len(collapsed.center))))))
        self.worth = worth or Worth(self.widest)
        #: size of the first step on multipliers
        self.rate = RATE
        self.tightening = self.branching = 0.0
        self.patience = 1.0
        #: how often each tap was tightened: others come first then
        self.turns = torch.zeros_like(collapsed.lower)

    def run(self, base: Domains, bound: Tensor, pool: Pool | None = None) -> None:
        """Prove the margin of `base` (one domain), whose bound with its multipliers is `bound` (1,).

        With a `pool`, which is (a part of) what a stopped search left, only its domains; `base` is then not tightened
        any more.
        """
        base, bound = self._use_facets(base, bound)
        tightens = pool is None
        if pool is None:
            if bool((bound <= ENOUGH).any()):
                base, bound = self._tighten(base, bound)
            pool = Pool(bound[:0], base.select(torch.tensor([], dtype=torch.long, device=bound.device)))
            self._keep(pool, bound, base, base)
        batch = self.worth.batch
        while len(pool):
            self.lowest = float(pool.bounds.min())
            self.budget.check_time()
            pays = tightens and self.patience == 1  # for the whole region, so before it is divided
            if self.stop is not None and not pays and len(pool) > 1 and self.stop():
                raise Stopped(pool, base)
            self.budget.allow(4 * pool.size)
            while tightens and bool((bound <= ENOUGH).any()) and self.branching > self.patience * self.tightening:
                base, bound = self._tighten(base, bound)
                pool.restrict(base)
            started, parents = worked(self.device), pool.take(batch.size)
            self._expand(pool, parents, base)
            spent = worked(self.device) - started
            self.branching += spent
            batch.add(spent)
        self.lowest = 0.0

    def _use_facets(self, base: Domains, bound: Tensor) -> tuple[Domains, Tensor]:
        """Bound taps of the first sites by facets from now on if that pays for the whole region.

        The region with new multipliers then, and its new bound.
        """
        if not self.worth.facets.over():
            return base, bound
        self.budget.check_time()
        above = self.above()
        shares, rate = None, RATE
        if above.largest.blocks and self.proof is None:  # the checker does not know those of max pooling
            rate = LAST
            facets, start = fit_pooled(above, self.dual, base)
            dual = self.dual.with_facets(facets)
        elif above.count:
            shares = fit(above, self.dual, base)
            facets = above.facets(shares)
            dual = self.dual.with_facets(facets)
            start = in_full(base)
        else:
            return base, bound
        better, improved = improve(dual, start, REGION_STEPS, enough=ENOUGH, rate=rate)
        pays = bool(better - bound > WORTHWHILE_FACETS * bound.abs())
        self.worth.facets.tried(pays)
        if not pays:
            return base, bound
        self.dual, self.exact, self.rate = dual, self.exact.with_facets(facets), rate
        if self.proof is not None:
            self.proof.facets = shares
        return replace(base, alpha=improved.alpha, share=improved.share), better

    def _tighten(self, base: Domains, bound: Tensor) -> tuple[Domains, Tensor]:
        """One round of tightening over the whole region: that, and its new bound.

        The next one comes when branching has taken `patience` times as long as all rounds: twice that after a round
        that gained little.
        """
        started = worked(self.device)
        score = scores(self.dual, base, self.dual.evaluate(base))[:, 0] / (1 + self.turns)
        count = self.worth.to_tighten(score, bound, TIGHTENED)
        if not count:
            self.patience = torch.inf
            return base, bound
        # the margin's facets are no good start for taps
        none = torch.zeros_like(base.share)
        start = replace(base, lower=base.lower.clone(), upper=base.upper.clone(), share=none)
        cost, chosen = score.topk(count)
        self.turns[chosen] += 1
        for taps in chosen.split(max(1, self.widest // 2)):
            self.budget.check_time()
            # the bounds of `start`, in place
            round_ = tighten(self.dual, self.exact, start, taps, TIGHTENING_STEPS, self.worth.starts)
            if self.proof is not None:
                self.proof.rounds.append(round_)
        base = replace(base, lower=start.lower, upper=start.upper)
        if bool((base.lower > base.upper).any()):
            return base, torch.full_like(bound, torch.inf)
        better, improved = improve(self.dual, base, REGION_STEPS, enough=ENOUGH, rate=self.rate)
        spent = worked(self.device) - started
        self.worth.rounds.add(float(cost.sum()), spent, float(better - bound))
        self.tightening += spent
        self.patience = 1.0 if bool(better - bound > WORTHWHILE * bound.abs()) else 2 * self.patience
        return replace(base, alpha=improved.alpha, share=improved.share), better

    def _keep(self, pool: Pool, bounds: Tensor, domains: Domains, base: Domains) -> float:
        """Keep what is not proven, clipped where that is worth it; the sum of what all of it needs."""
        bounds, domains = self._unproven(bounds, domains)
        if len(domains) and self.worth.clipping.over():
            started, before, after = worked(self.device), bounds, torch.zeros_like(bounds)
            self._clip(domains, base)
            columns = (~(domains.lower > domains.upper).any(0)).nonzero().flatten()  # NaN is not empty
            domains = self._without_empty(domains)
            if len(domains):
                bounds, domains = self._improve(domains)
                after[columns] = bounds
                bounds, domains = self._unproven(bounds, domains)
            self.worth.clipped(before, after, worked(self.device) - started)
        if not len(domains):
            return 0.0
        pool.add(bounds, domains)
        return float(need(bounds).sum())

    def _improve(self, domains: Domains) -> tuple[Tensor, Domains]:
        """Steps on the multipliers of domains as long as they save more time than they take."""
        return improve(self.dual, domains, MOST_STEPS, ENOUGH, self.worth.step, self.worth.batch.stepped, self.rate)

    def _clip(self, domains: Domains, base: Domains) -> None:
        """Tighten the bounds of the domains by what bounds their margins, in place."""
        if self.forms is None:
            exactly = base.exactly()
            self.forms = Forms(self.collapsed, self.exact, exactly)
            if self.proof is not None:
                group = self.forms.group_of(self.collapsed.count)
                self.proof.forms.append(UsedForms(len(self.proof.rounds), whole(exactly.alpha[:, 0]), group))
        row = self.exact.bounded(domains.exactly())
        self.forms.clip(domains, row)
        if self.dual.smooth and len(self.dual.taps) > 1:  # of which there are no proofs
            self._clip_by_own_forms(domains, row)
        if self.proof is not None:
            bounded = vars(self.proof.bounded(self.exact.told(domains, row.q)))
            self.proof.clips.append(Clip(**bounded, forms=len(self.proof.forms) - 1))

    def _clip_by_own_forms(self, domains: Domains, row: Row) -> None:
        """The same again for the taps behind the first site that cost the bounds of all domains most."""
        cost = scores(self.dual, domains, self.dual.evaluate(domains)).clamp(min=0).nan_to_num().sum(1)
        cost[: self.dual.taps[1][0]] = 0  # functions of the image, whatever the lines are
        top = cost.topk(min(OWN_FORMS, len(cost)))
        for taps in top.indices[top.values > 0].split(max(1, self.widest // len(domains))):
            if len(taps):  # of nothing there is one part, with nothing in it
                clip_by_own_forms(self.exact, domains, row, taps)

    def _unproven(self, bounds: Tensor, domains: Domains) -> tuple[Tensor, Domains]:
        """What is not proven: neither by bounds recomputed in float64, nor by having no point left."""
        empty = (domains.lower > domains.upper).any(0)
        sure = (bounds > MARGIN) & ~empty
        columns = sure.nonzero().flatten()
        if len(columns):
            row = self.exact.bounded(domains.select(columns).exactly())
            sure[columns] = proven(row.c)
        if self.proof is not None:
            if len(columns):
                certain = sure[columns].nonzero().flatten()
                closed = domains.select(columns[certain])
                self.proof.close(self.exact.told(closed, columns_of(row.q, certain)))
            self.proof.close_empty(domains.select(empty.nonzero().flatten()))
        rest = (~sure & ~empty).nonzero().flatten()
        return bounds[rest], domains.select(rest)

    def _expand(self, pool: Pool, parents: Domains, base: Domains) -> None:
        """Split the parents, bound the children, and keep those that are not proven."""
        started = worked(self.device)
        parents = self._without_empty(parents)
        if not len(parents):
            return
        evaluation = self.dual.evaluate(parents)
        witness = self.attack(evaluation.minimizer[evaluation.bound.argsort()[:4]])
        if witness is not None:
            raise Falsified(witness)
        done = ~self.dual.splittable(parents).any(0)
        if bool(done.any()):
            self._finish(parents.select(done.nonzero().flatten()))
            parents = parents.select((~done).nonzero().flatten())
            if not len(parents):
                return
            evaluation = self.dual.evaluate(parents)
        before, count = float(need(evaluation.bound).sum()), len(parents)
        children, levels = self._split(parents, evaluation), 1
        most = self.worth.levels(evaluation.bound)
        while levels < most and bool(self.dual.splittable(children).any(0).all()):
            children, levels = self._split(children, self.dual.evaluate(children)), levels + 1
        splits = len(children) - count
        left = self._keep(pool, *self._improve(children), base)
        gain = (before - left * count / len(children)) / levels  # of one split of each, on the average
        self.worth.splits.add(splits, worked(self.device) - started, gain * splits / count)

    def _split(self, domains: Domains, evaluation: Evaluation) -> Domains:
        """Both halves of each domain."""
        taps = taps_to_split(self.branching_rule, self.dual, domains, evaluation)
        first = self.visited + 1
        if self.proof is not None:
            self.proof.splits.append(Split(domains.node, taps, first))
        children = split(self.dual, domains, taps, first)
        self.visited += len(children)
        return children

    def _without_empty(self, domains: Domains) -> Domains:
        """The domains that have a point."""
        empty = (domains.lower > domains.upper).any(0)
        if not bool(empty.any()):
            return domains
        if self.proof is not None:
            self.proof.close_empty(domains.select(empty.nonzero().flatten()))
        return domains.select((~empty).nonzero().flatten())

    def _finish(self, leaves: Domains) -> None:
        """Decide domains in which nothing is left to split, exactly, by linear programming."""
        if self.dual.smooth:
            raise Exhausted("numerical")
        for i in range(len(leaves)):
            leaf = leaves.select(torch.tensor([i], device=leaves.margin.device)).to(torch.float64)
            _, beta, point = solve_leaf(self.collapsed, leaf, self.budget.left)
            leaf.split = torch.where(leaf.lower >= 0, 1, -1).to(leaf.split.dtype)
            leaf.beta = beta[:, None]
            row = self.exact.bounded(leaf)
            if bool(proven(row.c)):
                if self.proof is not None:
                    self.proof.close(self.exact.told(leaf, row.q))
                continue
            witness = self.attack(point[None], last=True) if point is not None else None
            if witness is not None:
                raise Falsified(witness)
            self.budget.check_time()
            raise Exhausted("numerical")
