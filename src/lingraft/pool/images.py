"""Verdicts on many images: in this process or in several, each confirmed by the model itself before it is given out."""

import time
from collections.abc import Iterator, Sequence

import torch

from lingraft.pool.answerer import decide, setup_of
from lingraft.pool.crew import Ask, Crew
from lingraft.pool.place import ANYWHERE, Place
from lingraft.pool.workers import Processes
from lingraft.solver.budget import free_memory, usable_cores
from lingraft.solver.confirmation import checked
from lingraft.solver.request import Limits, Request
from lingraft.solver.verifier import Problem, Result, Verifier

#: Share of the free memory that is used unless a limit is given.
MEMORY_SHARE = 0.7

#: Images that the model itself looks at together, before anything else.
FORWARD_BATCH = 64


def verify_each(
    request: Request,
    limits: Limits,
    place: Place = ANYWHERE,
    which: Sequence[int] | None = None,
    indices: Sequence[int] | None = None,
) -> Iterator[Result]:
    """Results of the images `which` (default: all) of the request, as they finish.

    `indices` are the indices that all images of the request have where they come from (default: 0, 1 …). They go into
    the results and into the seeds, so that an image gets the same treatment whatever else is asked.
    """
    indices = range(len(request)) if indices is None else indices
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
                yield _named(request, i, indices[i], wrong)

    def ask(i: int) -> tuple[Problem, int]:
        return request.problem(i), limits.seed * 1_000_003 + indices[i]

    for i, result in _answers(request, limits, place, open_, ask):
        yield _named(request, i, indices[i], checked(request, i, result))


def _answers(
    request: Request, limits: Limits, place: Place, numbers: list[int], ask: Ask
) -> Iterator[tuple[int, Result]]:
    """Results of some images as they finish, from wherever the work is done."""
    if place.ray is not None:
        from lingraft.pool.ray.answers import answers_of_ray

        return answers_of_ray(request, limits, place, numbers, ask)
    workers = _processes(place.workers, len(numbers), request.device)
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


def _named(request: Request, i: int, index: int, result: Result) -> Result:
    """Say which image the result is about."""
    result.index, result.eps, result.against = index, request.eps, request.against(i)
    result.label = None if request.labels is None else request.labels[i]
    result.neurons = request.network.neurons
    return result
