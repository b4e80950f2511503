"""Verdicts on many images: in this process or in several, each confirmed by the model itself before it is given out."""

import time
from collections.abc import Iterator, Sequence
from functools import partial

import torch

from lingraft.ball import eps_name
from lingraft.pool.opening import open_pool
from lingraft.pool.place import ANYWHERE, Place
from lingraft.pool.problems import VerifyProblems
from lingraft.pool.processes import POSSIBLE
from lingraft.solver.budget import usable_cores
from lingraft.solver.confirmation import checked
from lingraft.solver.request import Limits, Request
from lingraft.solver.verifier import Problem, Result

#: Images that the model itself looks at together, before anything else.
FORWARD_BATCH = 64


def verify_each(
    request: Request,
    limits: Limits,
    place: Place = ANYWHERE,
    which: Sequence[int] | None = None,
    indices: Sequence[int] | None = None,
) -> Iterator[tuple[int, Result]]:
    """Results of the images `which` (default: all) of the request, as they finish, each with its number there.

    `indices` are the indices that all images of the request have where they come from (default: 0, 1 …). They go into
    the results and into the seeds, so that an image gets the same treatment whatever else is asked. Several questions
    about one image share its index: only the number in the request says which one a result answers.
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
                yield i, _named(request, i, indices[i], wrong)

    def ask(i: int) -> tuple[Problem, int]:
        return request.problem(i).to("cpu"), limits.seed * 1_000_003 + indices[i]

    if not open_:
        return
    if place.ray is None:
        place = Place(processes(place.workers, len(open_), request.device))
    with open_pool(VerifyProblems(request.network, limits), place, limits.memory) as pool:
        for i in open_:
            pool.add(i, partial(ask, i), limits.timeout)
        for i, result in pool.answers():
            yield i, _named(request, i, indices[i], checked(request, i, result))


def processes(wanted: int | None, images: int, device: torch.device) -> int:
    """How many worker processes to use, 0 for none."""
    if wanted is None:
        cores = usable_cores() if POSSIBLE else 1
        wanted = cores if images > 1 and cores > 1 and device.type == "cpu" else 0
    return min(wanted, images)


def _named(request: Request, i: int, index: int, result: Result) -> Result:
    """Say which image the result is about."""
    result.eps = None if request.eps is None else eps_name(request.eps)
    result.index, result.against = index, request.against(i)
    result.label = None if request.labels is None else request.labels[i]
    result.neurons = request.network.neurons
    return result
