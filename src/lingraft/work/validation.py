"""What the verifier makes of validation or training images: how settings are compared, and where proofs are stuck."""

from dataclasses import dataclass

import torch
from torch import nn

from lingraft.ball import Radius
from lingraft.data import ImageSet
from lingraft.pool.place import Place
from lingraft.runs import Run
from lingraft.runs.summary import Summary, in_time, summarize
from lingraft.runs.verdicts import Verdicts
from lingraft.solver.request import Limits, Request
from lingraft.solver.verifier import Result
from lingraft.work.keeping import find_verdicts


@dataclass(frozen=True)
class Validation:
    """The first `images` of `data`, seconds for each, and what a run calls them; no test images."""

    data: ImageSet
    eps: Radius
    images: int
    timeout: float
    place: Place
    seed: int = 0
    name: str = "validation"

    def verify(self, run: Run, model: nn.Module, title: str) -> Summary:
        """The verdicts on the model of a run, which are kept there, as figures; `title` names the progress."""
        return summarize(self._results(run, model, title), self.timeout)

    def undecided(self, run: Run, model: nn.Module, title: str) -> ImageSet | None:
        """The images that the verifier neither proved nor broke in the time; None if there are none."""
        results = self._results(run, model, title)
        which = [i for i, result in enumerate(results) if in_time(result, self.timeout).verdict == "unknown"]
        index = torch.tensor(which, dtype=torch.long)
        return ImageSet(self.data.images[index], self.data.labels[index], self.data.clip) if which else None

    def _results(self, run: Run, model: nn.Module, title: str) -> list[Result]:
        few = self.data.take(min(self.images, len(self.data)))
        request = Request(model, few.pixels(), few.labels, eps=self.eps, clip=few.clip)
        limits = Limits(self.timeout, seed=self.seed)
        verdicts = Verdicts(run, self.name, request, limits)
        return list(find_verdicts(request, limits, self.place, verdicts=verdicts, title=title))
