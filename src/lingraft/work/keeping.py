"""Verdicts on the images of a request: those that a run folder holds, then the rest, each kept as it is found."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from lingraft.ball import PIXELS, shown
from lingraft.errors import LingraftError
from lingraft.pool.images import processes, verify_each
from lingraft.pool.place import ANYWHERE, Place
from lingraft.printable import duration
from lingraft.progress import console, progress
from lingraft.runs import Run, load_tensors
from lingraft.runs.verdicts import Verdicts
from lingraft.solver.request import Limits, Request
from lingraft.solver.verifier import Result
from lingraft.work.certify import ImageCertificates

#: Work that can take longer than this, in seconds, is announced.
LONG = 60.0

#: Ranges of images that the name of an entry in summary.json has at most.
RANGES = 8


def find_verdicts(
    request: Request,
    limits: Limits,
    place: Place = ANYWHERE,
    *,
    indices: Sequence[int] | None = None,
    verdicts: Verdicts | None = None,
    certificates: ImageCertificates | None = None,
    title: str | None = None,
) -> list[Result]:
    """The results of all images, in their order; with a `title`, a bar shows how far it is.

    `indices` are what the results call the images (default: 0, 1 …). What `verdicts` holds is not found again, unless
    certificates are wanted and it has none; the rest is kept there one by one, so that after a stop it goes on.
    """
    indices = range(len(request)) if indices is None else indices
    results = {} if verdicts is None else verdicts.known()
    if certificates is not None:
        results = {i: result for i, result in results.items() if certificates.has(i, result)}
    left = [i for i in range(len(request)) if i not in results]
    if title is not None:
        _announce(request, limits, place, len(left))
    tally = Tally()
    for result in results.values():
        tally.add(result)
    with progress(title or "", len(request), title is not None, len(results)) as advance:
        advance(0, str(tally))
        for i, result in verify_each(request, limits, place, left, indices):
            settled = {} if certificates is None else certificates.add(i, result)
            if verdicts is not None:
                for j, each in {i: result, **settled}.items():
                    verdicts.keep(j, each)
            results[i] = result
            tally.add(result)
            advance(1, str(tally))
    for i, result in () if certificates is None else certificates.finish().items():
        if verdicts is not None:
            verdicts.keep(i, result)
    return [results[i] for i in range(len(request))]


def _announce(request: Request, limits: Limits, place: Place, count: int) -> None:
    """Before long work, say on standard error how much there is and how long it can take at most."""
    workers = place.workers or 1 if place.ray is not None else processes(place.workers, count, request.device)
    where = "this process" if not workers else "1 worker" if workers == 1 else f"{workers} workers"
    most = math.ceil(count / max(1, workers)) * limits.timeout
    if most > LONG:
        known = f" of {len(request):,}, the others are known" if count < len(request) else ""
        images = f"{count:,} image{'s' * (count > 1)}{known}"
        console.print(f"{images}, at most {duration(most)} on {where}", highlight=False)


@dataclass
class Tally:
    """Verdicts so far: what is shown while the work goes on."""

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


def entry_name(data: str, request: Request, limits: Limits, indices: Sequence[int]) -> str:
    """What the figures of these images are called in summary.json."""
    clip = "" if request.clip == PIXELS else f" clip={shown(request.clip)}"
    return f"{data} eps={request.eps:.6g} images={_ranges(indices)} timeout={limits.timeout:g}{clip}"


def _ranges(indices: Sequence[int]) -> str:
    """50:100, or 0:10,17:18; where there are too many ranges, a number that changes with them instead."""
    ranges: list[list[int]] = []
    for i in sorted(set(indices)):
        if ranges and ranges[-1][1] == i:
            ranges[-1][1] = i + 1
        else:
            ranges.append([i, i + 1])
    if len(ranges) > RANGES:
        return f"{len(set(indices))} #{hashlib.sha256(repr(ranges).encode()).hexdigest()[:8]}"
    return ",".join(f"{start}:{stop}" for start, stop in ranges)


def require_same_weights(run: Run, model: nn.Module) -> None:
    """Refuse to keep in `run` what is measured of another model than the one it holds."""
    run.describe()
    kept, _ = load_tensors(run.weights_path)
    ours = model.state_dict()
    if kept.keys() != ours.keys() or not all(torch.equal(kept[name], ours[name].cpu()) for name in kept):
        raise LingraftError(
            f"{run.path} holds another model, or other weights, than the one given."
            " Keep this one in a folder of its own with lingraft.save or lingraft.train."
        )
