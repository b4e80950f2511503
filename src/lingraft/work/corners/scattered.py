"""Verdicts on the first images of a test set and on others scattered over it.

Verdicts on corner cases are kept in RUN/corners/verdicts.jsonl, apart from those of `lingraft verify`: corner cases are
harder than other images, and a VA over all verdicts of a run, as a report shows it, must not count them in. The records
are the same, and so are their keys: no image is verified twice, whichever of the two files its verdict is in.
"""

from collections.abc import Sequence

from torch import nn

from lingraft.data import ImageSet
from lingraft.pool.images import verify_each
from lingraft.pool.place import Place
from lingraft.progress import progress
from lingraft.runs import Run
from lingraft.runs.verdicts import Verdicts
from lingraft.solver.request import Limits, Request
from lingraft.solver.verifier import Result
from lingraft.work.verify import Tally


def verify_scattered(
    run: Run,
    model: nn.Module,
    data: str,
    test: ImageSet,
    eps: float,
    limits: Limits,
    place: Place,
    first: int,
    others: Sequence[int],
) -> dict[int, Result]:
    """Results of the `first` images of `test` (the data set `data`) and of the `others`, by index.

    Those that the run folder has are read, the rest is verified and kept one by one: a stopped command goes on.
    """
    which = sorted({*range(first), *others})
    chosen = test.take(which[-1] + 1)  # an image is then known by its index in the test set, as `lingraft verify` does
    request = Request(model, chosen.pixels(), chosen.labels, eps=eps)
    regular = Verdicts(run, data, request, limits)
    apart = Verdicts(run, data, request, limits, path=run.path / "corners" / "verdicts.jsonl")
    results = regular.known()
    for i, result in apart.known().items():
        if i not in results:
            results[i] = result
            if i < first:
                regular.keep(result)
    left = [i for i in which if i not in results]
    tally = Tally(len(which))
    with progress(f"verifying {run.path}", len(which)) as advance:
        for i in which:
            if i in results:
                tally.add(results[i])
        advance(len(which) - len(left), str(tally))
        for result in verify_each(request, limits, place, left):
            (regular if result.index < first else apart).keep(result)
            results[result.index] = result
            tally.add(result)
            advance(1, str(tally))
    return {i: results[i] for i in which}
