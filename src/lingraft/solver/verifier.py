"""One image, from the cheapest stage to the most expensive, stopping at the first answer.

forward → attack → intervals → crown → alpha (on the margins) → branch and bound with tightened bounds, and now and then
another attack on all margins that are left. Margins that are proven are dropped on the way. Where few inputs have any
width, branch and bound over the input takes turns with that over the neurons, after that attack.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial

import torch
from torch import Tensor

from lingraft.process_memory import is_out_of_memory, peak_memory
from lingraft.solver.ascent import improve
from lingraft.solver.bab import ENOUGH, Falsified, Search, Stopped
from lingraft.solver.bounds import SiteBounds, bound_sites, margin_crown, margin_intervals
from lingraft.solver.boxes import FEW_INPUTS, Boxes, BoxSearch, Maxima
from lingraft.solver.branching import require_rule
from lingraft.solver.budget import Budget, Exhausted
from lingraft.solver.clock import worked
from lingraft.solver.collapse import Collapsed, collapse
from lingraft.solver.conjunction import ConjunctionSearch, collapsed_functions
from lingraft.solver.crown import chunks
from lingraft.solver.dual import Domains, Dual, root_domains
from lingraft.solver.facets import Above
from lingraft.solver.falsify import Falsifier
from lingraft.solver.margin import MARGIN
from lingraft.solver.network import Network
from lingraft.solver.nodes import Product, Site
from lingraft.solver.nonlinearity import unstable
from lingraft.solver.products import balanced
from lingraft.solver.proof import BoxProof, MarginProof, Proof
from lingraft.solver.region import Region
from lingraft.solver.remainder import OpenMargin, Remainder
from lingraft.solver.rounding import Loss, Sizes, allowance
from lingraft.solver.visible import visible
from lingraft.solver.worth import Worth

#: Steps of a first look for a witness, which most images pay for nothing; of a short attack on what bounds leave; of a
#: long one, and its restarts; steps on the margins' multipliers.
LOOK_STEPS, QUICK_STEPS, LONG_STEPS, LONG_RESTARTS, ALPHA_STEPS = 5, 10, 40, 3, 20

#: Attacks on the margin that came nearest to 0, after the long ones: how many, from how many points, and their steps.
DEEP, DEEP_STARTS, DEEP_STEPS = 2, 8, 100

#: Share of the time of branch and bound that attacks take at most, after the first.
ATTACKING = 0.1

#: Margins are multiplied by a number so large that their terms are about 1; those with smaller terms than this by less.
LEAST_TERMS = 2.0**-60

#: Seconds of the first turn of either search where inputs are few; each turn is twice as long as the one before.
FIRST_TURN = 1.0


@dataclass
class Problem:
    """Is spec·logits + offset > 0 (L margins) on the whole region? `image` is where the first look is taken.

    Where equality is for others to judge, `confirm` says whether a point with a margin of 0 or less is a witness; then
    it is taken that `image` is none.
    `maxima` says which values the logits are the largest of, where they are.
    """

    image: Tensor
    region: Region
    spec: Tensor
    offset: Tensor
    confirm: Callable[[Tensor], bool] | None = None
    maxima: Maxima | None = None

    def to(self, device: torch.device | str) -> "Problem":
        """The same on another device."""
        region = Region(self.region.lower.to(device), self.region.upper.to(device))
        return replace(
            self, image=self.image.to(device), region=region, spec=self.spec.to(device), offset=self.offset.to(device)
        )


@dataclass
class Result:
    """The verdict on one image, and how it came about.

    `verdict` is "verified", "falsified", "unknown" (with a `reason`) or "misclassified"; `stage` is what decided it;
    `crown` and `alpha` are the lower bounds of the margins at the root before and after optimization, `branched` is the
    lowest of them where branch and bound ended, about, or 0 where it proved them all; `unstable` counts the unstable
    neurons of every site (`nonlinearity.py`), of `neurons` in all; `memory` is the process's peak in MiB.
    `verify` fills in the rest: `index` of the image, its `label` and `eps` if it has them (of a tensor, its name),
    `against` what each margin compares the label with (classes, or rows of constraints), and an `error` that ended it.
    `proof` is there if it was asked for and the verdict is "verified", `remainder` if the search was stopped to be
    divided. `certificate` says whether a verified image has one, `checked` whether the checker accepts it; None where
    that was not asked.
    """

    verdict: str
    stage: str
    reason: str | None = None
    seconds: float = 0.0
    witness: Tensor | None = None
    crown: list[float] = field(default_factory=list)
    alpha: list[float] = field(default_factory=list)
    branched: float | None = None
    unstable: dict[str, int] = field(default_factory=dict)
    domains: int = 0
    memory: float = 0.0
    neurons: int = 0
    index: int = 0
    label: int | None = None
    eps: float | str | None = None
    against: list[int] = field(default_factory=list)
    error: str | None = None
    proof: Proof | None = None
    remainder: Remainder | None = None
    certificate: bool | None = None
    checked: bool | None = None

    @property
    def proof_state(self) -> str | None:
        """What became of its proof: "checked", "rejected", "written", "missing"; None where nobody asked for one."""
        if self.certificate is None:
            return None
        if not self.certificate:
            return "missing"
        return "written" if self.checked is None else "checked" if self.checked else "rejected"

    def __repr__(self) -> str:
        label = "" if self.label is None else f", label {self.label}"
        why = f" ({self.reason})" if self.reason else ""
        state = "" if self.proof_state is None else f", proof {self.proof_state}"
        return f"Result(image {self.index}{label}: {self.verdict}{why} by {self.stage}, {self.seconds:.3g} s{state})"


class Verifier:
    """A network made ready: constants in float64 for bounds, in float32 for attacks."""

    def __init__(self, network: Network, double: bool = False, branching: str = "smart"):
        self.network, self.branching = network, branching
        require_rule(branching)
        #: the stage of the last attempt, and who is told when one begins
        self.stage = "forward"
        self.on_stage: Callable[[str], None] | None = None
        self.single = network.to(torch.float32)
        self.sizes = Sizes(network)
        self.dtype = torch.float64 if double else torch.float32
        #: whether proofs can be kept: they know no activations but ReLU and lines
        self.provable = all(node.activation.pieces is not None for node in network.nodes if isinstance(node, Site))

    def verify(
        self,
        problem: Problem,
        timeout: float,
        memory: float = float("inf"),
        seed: int = 0,
        prove: bool = False,
        stop: Callable[[], bool] | None = None,
    ) -> Result:
        """The verdict on one problem within `timeout` seconds and about `memory` bytes; with its proof on request.

        When `stop` says so, the search may end as unknown with a remainder; never where a proof is kept.
        """
        budget, proof = Budget(timeout, memory), Proof() if prove and self.provable else None
        attempt = _Attempt(self, problem, budget, seed, proof, None if prove else stop)
        return self._finish(attempt, attempt.run)

    def resume(
        self,
        problem: Problem,
        remainder: Remainder,
        timeout: float,
        memory: float = float("inf"),
        stop: Callable[[], bool] | None = None,
    ) -> Result:
        """The verdict on (a part of) what an earlier attempt left of a problem."""
        attempt = _Attempt(self, problem, Budget(timeout, memory), 0, None, stop)
        return self._finish(attempt, partial(attempt.resume, remainder))

    def _finish(self, attempt: "_Attempt", run: Callable[[], Result]) -> Result:
        """What `run` gives, or how it ended."""
        started = time.monotonic()
        try:
            result = run()
        except Exhausted as end:
            result = attempt.finish("unknown", end.reason)
        except Falsified as end:
            result = attempt.finish("falsified")
            result.witness = end.witness
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            result = attempt.finish("unknown", "memory")
        result.seconds = time.monotonic() - started
        result.memory = peak_memory()
        result.neurons = self.network.neurons
        return result


class _Attempt:
    """What is known of one problem so far."""

    def __init__(
        self,
        verifier: Verifier,
        problem: Problem,
        budget: Budget,
        seed: int,
        proof: Proof | None,
        stop: Callable[[], bool] | None,
    ):
        #: what margins were multiplied with, and the problem with such margins
        self.unit, problem = _scaled(verifier.network, problem)
        self.verifier, self.problem, self.proof, self.stop = verifier, problem, proof, stop
        self.device = problem.spec.device
        #: what there is in all, and for what is done now: a turn has a part of it
        self.whole = self.budget = budget
        self.network = balanced(verifier.network, problem.region)
        self.sizes = verifier.sizes if self.network is verifier.network else Sizes(self.network)
        self.falsifier = Falsifier(
            verifier.single, problem.region, problem.spec, problem.offset, seed, budget, problem.confirm
        )
        self.result = Result("unknown", "forward")
        self._enter("forward")
        #: long attacks from random points that are still to come, and the seconds of attacks in this branch and bound
        self.restarts, self.attacking = 0, 0.0
        self.rounding = torch.zeros_like(problem.offset)

    def _enter(self, stage: str) -> None:
        self.result.stage = self.verifier.stage = stage
        if self.verifier.on_stage is not None:
            self.verifier.on_stage(stage)

    def finish(self, verdict: str, reason: str | None = None) -> Result:
        self.result.verdict, self.result.reason = verdict, reason
        if verdict == "verified" and self.result.branched is not None:  # also where another search proved the rest
            self.result.branched = 0.0
        self.result.proof = self.proof if verdict == "verified" else None
        return self.result

    def run(self) -> Result:
        """Stage by stage; the result's `stage` is the one that was reached."""
        problem = self.problem
        if problem.confirm is None and bool((self.falsifier.margins(problem.image[None].float()) <= 0).any()):
            return self.finish("misclassified")
        every = torch.arange(len(problem.spec), device=problem.spec.device)
        self._attack(every, LOOK_STEPS, 1)
        try:
            found, left = self._root(every)
        except Exhausted as end:
            if end.reason != "numerical" or self.verifier.provable or self._moving_inputs > FEW_INPUTS:
                raise
            # a pole that the bounds of the region have need not be in those of its parts
            self._attack(every, LONG_STEPS, LONG_RESTARTS)
            return self._take_turns(partial(self._split, self._box_search(every), lambda: None))
        if not len(left):
            return self.finish("verified")
        self._attack(left, QUICK_STEPS, 1)
        return self._optimize(found, left)

    def _root(self, every: Tensor) -> tuple[SiteBounds, Tensor]:
        """Bounds of all sites by intervals and, unless these prove all margins, by CROWN; the margins that are left."""
        result, problem, left = self.result, self.problem, every
        self._enter("intervals")
        found = bound_sites(self.network, problem.region, self.budget, "intervals", self.sizes)
        self._allow_for_rounding(found)
        left = left[_open(margin_intervals(found, *self._spec(left)))]
        if not len(left):
            self._count(found)
            return found, left
        self._enter("crown")
        # a checker of proofs looks at all neurons
        seen = visible(self.network, problem.spec) if self.proof is None else None
        found = bound_sites(self.network, problem.region, self.budget, sizes=self.sizes, visible=seen)
        self._allow_for_rounding(found)
        self._count(found)
        bounds = self._crown(found, every)
        left = left[_open(bounds)[left]]
        result.crown = (bounds / self.unit).tolist()
        return found, left

    def _crown(self, found: SiteBounds, margins: Tensor) -> Tensor:
        """Bounds of the margins by CROWN, less what rounding may add; from now on `rounding` allows for that, too."""
        bounds, losses = [], []
        for some in chunks(self.network, len(self.network.nodes) - 1, margins, self.budget):
            loss = Loss(found.losses)
            bounds.append(margin_crown(self.network, found, *self._spec(some), loss, self.budget) - loss.total)
            losses.append(loss.total + torch.zeros_like(bounds[-1]))
        self.rounding = self.rounding + torch.cat(losses)
        return torch.cat(bounds)

    def _allow_for_rounding(self, found: SiteBounds) -> None:
        """Set `rounding` for these bounds."""
        spec, offset = self.problem.spec.double(), self.problem.offset.double()
        self.rounding = allowance(found.losses, found.sizes[-1], spec, offset)

    def _spec(self, margins: Tensor) -> tuple[Tensor, Tensor]:
        """What is to be proven: the margins less what rounding may add to their bounds."""
        return self.problem.spec[margins].double(), (self.problem.offset.double() - self.rounding)[margins]

    def _count(self, found: SiteBounds) -> None:
        for i, parts in self.network.bends.items():
            each = [unstable(site, *found.bounds[j]) for j in parts if isinstance(site := self.network.nodes[j], Site)]
            if found.visible is not None:  # others have the bounds of intervals only
                each = [some & found.visible[j] for some, j in zip(each, parts, strict=True)]
            self.result.unstable[self.network.nodes[i].name] = int(torch.stack(each).any(0).sum())

    def _attack(self, margins: Tensor, steps: int, restarts: int) -> None:
        self._enter("attack")
        witness = self.falsifier.search(margins, steps, restarts)
        if witness is not None:
            raise Falsified(witness)

    def _optimize(self, found: SiteBounds, left: Tensor) -> Result:
        """α on the margins, then branch and bound, the lowest margin first."""
        result = self.result
        self._enter("alpha")
        collapsed = collapse(self.network, found, *self._spec(left), self.budget)
        dual, exact = self._duals(collapsed)
        bounds, domains = improve(dual, root_domains(collapsed, dual.dtype), ALPHA_STEPS, enough=ENOUGH)
        certain = exact.bound(domains.exactly())
        open_ = _open(certain)
        result.alpha = list(result.crown)
        for number, bound in zip(left.tolist(), (certain / self.unit[left]).tolist(), strict=True):
            result.alpha[number] = max(bound, result.crown[number])
        proofs = self._prove(collapsed, left, domains, open_)
        order = [i for i in certain.argsort().tolist() if open_[i]]
        if not order:
            return self.finish("verified")
        open_margins = [OpenMargin(domains.select(left.new_tensor([i])), bounds[i : i + 1]) for i in order]
        work = Remainder(collapsed, left, open_margins)
        lowest = left[left.new_tensor(order)]
        conjunctions = self._conjunctions(lowest)
        if self._moving_inputs > FEW_INPUTS and not conjunctions:
            self.restarts = LONG_RESTARTS + DEEP
            return self._branch(dual, exact, work, proofs)
        self._attack(lowest, LONG_STEPS, LONG_RESTARTS)
        prove = partial(self._prove, collapsed, left, domains, open_)
        turns: list[Callable[[], Result | None]] = [lambda: self._branch(dual, exact, work, prove())]
        if self._moving_inputs <= FEW_INPUTS:
            if any(isinstance(node, Product) for node in self.network.nodes):
                turns = [partial(self._once, turns[0])]  # where products bend does not change with neurons
            turns.append(partial(self._split, self._box_search(lowest), prove))
        if conjunctions:
            turns.append(partial(self._propagate, conjunctions))
        return self._take_turns(*turns)

    def _conjunctions(self, margins: Tensor) -> list[ConjunctionSearch]:
        """Searches by propagation, one for each of the margins; none where they cannot be, or a proof is kept."""
        problem, maxima = self.problem, self.problem.maxima
        spec = problem.spec[margins]
        picks = bool(((spec > 0).sum(1) == 1).all() and ((spec != 0).sum(1) == 1).all())
        if maxima is None or self.proof is not None or not picks or bool(problem.offset[margins].any()):
            return []
        functions = collapsed_functions(self.network, problem.region, maxima.node, self.budget)
        if functions is None:
            return []
        least = (MARGIN / spec.amax(1)).tolist()  # the functions are not multiplied
        each = zip(margins, maxima.values[spec.argmax(1).cpu()], least, strict=True)
        return [
            ConjunctionSearch(*functions, which, partial(self._look, margin[None]), above)
            for margin, which, above in each
        ]

    def _propagate(self, searches: list[ConjunctionSearch]) -> Result | None:
        """All of the searches; None if one of them does not get on."""
        self._enter("propagation")
        before = sum(search.visited for search in searches)
        try:
            if not all(search.run(self.budget) for search in searches):
                return None
        finally:
            self.result.domains += sum(search.visited for search in searches) - before
        return self.finish("verified")

    @property
    def _moving_inputs(self) -> int:
        """How many inputs have any width."""
        return int((self.problem.region.upper > self.problem.region.lower).sum())

    def _once(self, turn: Callable[[], Result | None]) -> Result | None:
        """A way to search that gives up after one turn, unless all time is over."""
        try:
            return turn()
        except Exhausted as end:
            self.whole.check_time()
            if end.reason != "time":
                raise
            return None

    def _take_turns(self, *turns: Callable[[], Result | None]) -> Result:
        """Several ways to search, each for as long as the budget that it finds, until one of them has an answer.

        One that gives up (None) or cannot go on leaves its time to the others, unless what stopped it is what rounding
        does to a network made of lines: there, other cuts end at the same numbers.
        """
        going, seconds = list(turns), FIRST_TURN
        while going:
            for turn in tuple(going):
                self.budget = self.whole.part(seconds) if len(going) > 1 else self.whole
                try:
                    result = turn()
                    if result is not None:
                        return result
                    going.remove(turn)
                except Exhausted as end:
                    self.whole.check_time()
                    if end.reason != "time":
                        going.remove(turn)
                    if not going or (end.reason == "numerical" and self.verifier.provable):
                        raise
            seconds *= 2
        raise Exhausted("time")

    def _box_search(self, margins: Tensor) -> BoxSearch:
        """One over the whole region, for these margins."""
        problem = self.problem
        lower, upper = (self.network.inside(t[None]).flatten() for t in (problem.region.lower, problem.region.upper))
        return BoxSearch(
            self.verifier.network,  # in which products are bounded box by box
            self.verifier.sizes,
            problem.spec[margins].double(),
            problem.offset[margins].double(),
            Boxes.whole(lower, upper, len(margins)),
            partial(self._look, margins[:1]),
            problem.maxima,
            self.budget.memory,
            None if self.proof is None else BoxProof(margins.tolist()),
        )

    def _look(self, margin: Tensor, points: Tensor) -> Tensor | None:
        """A witness among points (N, n) themselves, of a margin (1,)."""
        images = self.network.outside(points.view(-1, *self.network.nodes[0].shape))
        return self.falsifier.descend(images, margin.expand(len(images)), steps=0)

    def _split(self, search: BoxSearch, prove: Callable[[], object]) -> Result | None:
        """Branch and bound over the input; None if all time there is would not be enough to cut every input once.

        `prove` begins the proofs of all margins.
        """
        self._enter("boxes")
        before, began = search.visited, time.monotonic()
        try:
            search.run(self.budget)
        except Exhausted as end:
            each = (time.monotonic() - began) / max(1, search.visited - before)
            if end.reason != "time" or self.whole.left > self._moving_inputs * each:
                raise
            return None
        finally:
            self.result.domains += search.visited - before
        if self.proof is not None:
            prove()
            self.proof.margins = [margin for margin in self.proof.margins if margin.leaves]  # those of the root
            self.proof.boxes = search.proof
        return self.finish("verified")

    def resume(self, remainder: Remainder) -> Result:
        """Branch and bound of what an earlier attempt left; where inputs are few, in turn with that over the input.

        The latter proves the margins on all of the region, and so what is left of them.
        """
        duals = self._duals(remainder.collapsed)
        if self._moving_inputs > FEW_INPUTS:
            return self._branch(*duals, remainder, {})
        margins = torch.cat([remainder.numbers[margin.base.margin] for margin in remainder.margins]).unique()
        # a turn that comes to its end in the middle of a batch has taken domains out of its pool: each has its own
        return self._take_turns(
            lambda: self._branch(*duals, remainder.copy(), {}),
            partial(self._split, self._box_search(margins), lambda: None),
        )

    def _duals(self, collapsed: Collapsed) -> tuple[Dual, Dual]:
        """One to search with, and one in float64 to prove with."""
        return Dual(collapsed, self.verifier.dtype, self.budget), Dual(collapsed, torch.float64, self.budget)

    def _branch(self, dual: Dual, exact: Dual, work: Remainder, proofs: dict[int, MarginProof]) -> Result:
        """One open margin after the other."""
        self._enter("branch")
        worth: Worth | None = None
        above = cache(partial(Above, work.collapsed, self.budget))
        since, self.attacking = worked(self.device), 0.0
        for done, margin in enumerate(work.margins):
            column = margin.base.margin
            open_ = work.numbers[torch.cat([each.base.margin for each in work.margins[done:]])]
            attack = partial(self._try, open_, since)
            proof = proofs.get(int(column))
            rule = self.verifier.branching
            search = Search(work.collapsed, dual, exact, self.budget, attack, proof, self.stop, rule, worth, above)
            worth = search.worth
            try:
                search.run(margin.base, margin.bound, margin.pool)
            except Stopped as stopped:
                margin.base, margin.pool = stopped.base, stopped.pool
                self.result.remainder = Remainder(work.collapsed, work.numbers, work.margins[done:])
                return self.finish("unknown", "stopped")
            finally:
                self.result.domains += search.visited
                if search.lowest is not None:
                    lowest = [search.lowest, *(float(later.bound) for later in work.margins[done + 1 :])]
                    units = (float(self.unit[work.numbers[later.base.margin]]) for later in work.margins[done:])
                    self.result.branched = min(bound / unit for bound, unit in zip(lowest, units, strict=True))
        return self.finish("verified")

    def _prove(self, collapsed: Collapsed, left: Tensor, domains: Domains, open_: Tensor) -> dict[int, MarginProof]:
        """Begin the proof of every margin that is left, if one is wanted: those not `open_` are proven at the root."""
        if self.proof is None:
            return {}
        self.proof.sites = [(taps.site, taps.index) for taps in collapsed.taps]
        self.proof.margins = [MarginProof(number, float(self.unit[number])) for number in left.tolist()]
        for i, proof in enumerate(self.proof.margins):
            if not open_[i]:
                proof.close(domains.select(torch.tensor([i], device=left.device)))
        return dict(enumerate(self.proof.margins))

    def _try(self, open_: Tensor, since: float, points: Tensor, last: bool = False) -> Tensor | None:
        """An attack, unless those since a time have taken their share and it is not the `last`.

        A few steps of descent on the first of the open margins (K,) from points (N, n) that minimize the relaxed
        problem, and a long one from random points if some of these are left: on all of them, the last ones on one.
        """
        started = worked(self.device)
        if self.attacking > ATTACKING * (started - since) and not last:
            return None
        inner = points.view(-1, *self.network.nodes[0].shape)
        witness = self.falsifier.descend(self.network.outside(inner), open_[:1].expand(len(inner)), steps=3)
        # a deep attack takes long on a large network
        price = self.falsifier.price * DEEP_STARTS * DEEP_STEPS if self.restarts <= DEEP else 0.0
        if witness is None and self.restarts and (not price or self.attacking + price < ATTACKING * (started - since)):
            self.restarts -= 1
            if self.restarts >= DEEP:
                self._attack(open_, LONG_STEPS, 1)
            else:
                nearest = open_[self.falsifier.lowest[open_].argmin()]
                self._attack(nearest.expand(DEEP_STARTS), DEEP_STEPS, 1)
            self._enter("branch")
        self.attacking += worked(self.device) - started
        return witness


def _scaled(network: Network, problem: Problem) -> tuple[Tensor, Problem]:
    """The problem with margins whose terms are not small, and what they were multiplied with (L,): powers of two.

    A margin counts as proven above `MARGIN`, which must be little beside the numbers that it is made of.
    """
    outputs = network.forward(problem.image[None].double())[0].abs()
    spec, offset = problem.spec.double(), problem.offset.double()
    terms = (spec.abs() @ outputs + offset.abs()).clamp(LEAST_TERMS, 1.0)
    unit = torch.exp2(-terms.log2().floor())
    return unit, replace(problem, spec=spec * unit[:, None], offset=offset * unit)


def _open(bounds: Tensor) -> Tensor:
    """Which margins their bounds do not prove. Overflow proves nothing: inf or NaN ends the attempt."""
    if not bool(torch.isfinite(bounds).all()):
        raise Exhausted("numerical")
    return bounds <= MARGIN
