"""Verdicts on many images: in this process or in several, each checked by the model itself before it is given out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor, nn

from lingraft.pool.images import verify_each
from lingraft.pool.place import Place
from lingraft.progress import progress as show
from lingraft.solver.request import Constraints, Limits, Request
from lingraft.solver.verifier import Result
from lingraft.work.keeping import verify_and_keep

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
    limits = Limits(timeout, memory, double, seed)
    place = Place(workers, ray)
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
            verify_and_keep(run, request, limits, place, seen)
        else:
            for result in verify_each(request, limits, place):
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
