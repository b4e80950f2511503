"""Verdicts on many images: in this process or in several, each checked by the model itself before it is given out."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from lingraft.progress import progress as show
from lingraft.verification.answerer import decide, setup_of
from lingraft.verification.budget import free_memory, usable_cores
from lingraft.verification.crew import Ask, Crew
from lingraft.verification.request import Constraints, Limits, Request
from lingraft.verification.verifier import Problem, Result, Verifier
from lingraft.verification.workers import Processes

if TYPE_CHECKING:
    from lingraft.runs import Run

#: Share of the free memory that is used unless a limit is given.
MEMORY_SHARE = 0.7

#: Images that the model itself looks at together, before anything else.
FORWARD_BATCH = 64


def verify(
    model: nn.Module,
    images: Tensor | None,
    labels: Tensor | Sequence[int] | None = None,
    *,
    eps: float | None = None,
    lower: Tensor | None = None,
    upper: Tensor | None = None,
    clip: tuple[float, float] | None = (0.0, 1.0),
    constraints: Constraints | None = None,
    timeout: float = 300.0,
    workers: int | None = None,
    double: bool = False,
    memory: float | None = None,
    seed: int = 0,
    ray: str | None = None,
    run: "str | Path | Run | None" = None,
    progress: bool = False,
) -> list[Result]:
    """The verdict on every image: does the model keep its label on the whole region around it?

    `images` are (N, *shape) and `labels` (N,). The region is the ℓ∞ ball of radius `eps` cut to `clip`, or the box from
    `lower` to `upper` (N, *shape), taken as it is (`images` may then be None: the middle of the boxes). Instead of
    labels, `constraints` (C, d) asks for C·logits + d > 0, the same for all images. An image that the model itself gets
    wrong is "misclassified" and not looked at further.

    `timeout` is in seconds an image; `memory` in bytes, in all (default: 70 % of what is free). `workers` processes
    share the images, one thread each (default: one a core; for one image, and on a GPU, this process); 0: this process.
    `double` searches in float64 as well; proofs are recomputed in float64 in any case. `ray` is the address of a Ray
    cluster that does the work ("auto": that of this machine, "local": a new one); see docs/cluster.md. `progress` shows
    a bar.

    `run` is the folder of a run that holds this model: verdicts are kept there as they are found, for the report and
    for another call, which goes on after a stop. That needs labels and `eps`.

    Results come in the order of the images. The model must be in eval mode; see docs/verification.md for what a
    verdict promises.
    """
    limits = Limits(timeout, memory, workers, double, seed, ray=ray)
    request = Request(model, images, labels, eps=eps, lower=lower, upper=upper, clip=clip, constraints=constraints)
    results: dict[int, Result] = {}
    tally = Tally(len(request))
    with show("verifying", len(request) if progress else 0) as advance:

        def seen(result: Result) -> None:
            results[result.index] = result
            tally.add(result)
            if progress:
                advance(1, str(tally))

        if run is not None:
            from lingraft.verification.keeping import verify_and_keep

            verify_and_keep(run, request, limits, seen)
        else:
            for result in verify_each(request, limits):
                seen(result)
    return [results[i] for i in sorted(results)]


@dataclass
class Tally:
    """Verdicts so far, of `total`: what is shown while the work goes on."""

    total: int
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        """Count one more."""
        self.counts[result.verdict] = self.counts.get(result.verdict, 0) + 1

    def __str__(self) -> str:
        done = max(1, sum(self.counts.values()))
        verified, falsified, unknown, wrong = (
            self.counts.get(name, 0) for name in ("verified", "falsified", "unknown", "misclassified")
        )
        return (
            f"verified {verified}, falsified {falsified}, unknown {unknown}, misclassified {wrong};"
            f" VA so far {verified / done:.1%}"
        )


def verify_each(
    request: Request, limits: Limits, which: Sequence[int] | None = None, first: int = 0
) -> Iterator[Result]:
    """Results of the images `which` (default: all), as they finish; `first` is added to their index.

    The index also goes into the seed, so that an image gets the same treatment whatever else is asked.
    """
    numbers = list(range(len(request)) if which is None else which)
    open_: list[int] = []
    for start in range(0, len(numbers), FORWARD_BATCH):
        some = numbers[start : start + FORWARD_BATCH]
        begun = time.monotonic()
        lowest = request.replay(request.images[some], some)
        seconds = (time.monotonic() - begun) / len(some)
        for i, margin in zip(some, lowest, strict=True):
            if margin > 0:
                open_.append(i)
            else:
                wrong = Result("misclassified", "forward", seconds=seconds, neurons=request.network.neurons)
                yield _named(request, i, first, wrong)

    def ask(i: int) -> tuple[Problem, int]:
        return request.problem(i), limits.seed * 1_000_003 + first + i

    for i, result in _answers(request, limits, open_, ask):
        yield _named(request, i, first, checked(request, i, result))


def _answers(request: Request, limits: Limits, numbers: list[int], ask: Ask) -> Iterator[tuple[int, Result]]:
    """Results of some images as they finish, from wherever the limits say that the work is done."""
    if limits.ray is not None:
        from lingraft.cluster.answers import answers_of_ray

        return answers_of_ray(request, limits, numbers, ask)
    workers = _processes(limits.workers, len(numbers), request.device)
    memory = MEMORY_SHARE * free_memory() if limits.memory is None else limits.memory
    if workers:
        staff = Processes(setup_of(request.network, limits), workers, memory)
        return Crew(staff, limits.timeout).run(numbers, ask)
    return _here(request, limits, memory, numbers, ask)


def _here(
    request: Request, limits: Limits, memory: float, numbers: list[int], ask: Ask
) -> Iterator[tuple[int, Result]]:
    """One image after the other, in this process."""
    if numbers:
        with torch.inference_mode(False):
            verifier = Verifier(request.network, limits.double)
        for i in numbers:
            problem, seed = ask(i)
            yield i, decide(verifier, problem, limits.timeout, memory, seed, limits.prove)


def _processes(wanted: int | None, images: int, device: torch.device) -> int:
    """How many worker processes to use, 0 for none."""
    if wanted is None:
        cores = usable_cores()
        wanted = cores if images > 1 and cores > 1 and device.type == "cpu" else 0
    return min(wanted, images)


def checked(request: Request, i: int, result: Result) -> Result:
    """The result, unless the model itself does not confirm it: then it is unknown.

    A witness must lie in the region exactly, as numbers of the model's own precision, and the model must get it wrong.
    Where the network was verified, the model must have the same margins at points of the region.
    """
    if result.verdict == "misclassified":
        return _doubtful(result, "the image is on the boundary: only rounding decides whether the model gets it right")
    if result.verdict == "verified":
        why = request.disagreement(i, low=result.stage not in ("intervals", "crown"))  # else no margin is very low
        return result if why is None else _doubtful(result, why)
    if result.verdict != "falsified":
        return result
    if result.witness is None:
        return _doubtful(result, "a counterexample without a witness")
    witness = request.own_precision(result.witness)
    region = request.region(i)
    inside = (witness.double() >= region.lower.double()) & (witness.double() <= region.upper.double())
    if not bool(inside.all()):
        return _doubtful(result, "the witness found does not lie in the region when rounded as the model needs it")
    if not request.replay(witness[None], [i])[0] < 0:
        return _doubtful(result, "the model itself, in its own precision, does not get the witness found wrong")
    result.witness = witness
    return result


def _doubtful(result: Result, why: str) -> Result:
    result.verdict, result.reason, result.error, result.witness, result.proof = "unknown", "numerical", why, None, None
    return result


def _named(request: Request, i: int, first: int, result: Result) -> Result:
    """Say which image the result is about."""
    result.index, result.eps, result.against = first + i, request.eps, request.against(i)
    result.label = None if request.labels is None else request.labels[i]
    result.neurons = request.network.neurons
    return result
