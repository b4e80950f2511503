"""What the verifier proves of validation images: how settings are compared before any test image is looked at."""

from dataclasses import dataclass

from torch import nn

from lingraft.ball import Radius
from lingraft.data import ImageSet
from lingraft.pool.place import Place
from lingraft.runs import Run
from lingraft.runs.summary import Summary, summarize
from lingraft.runs.verdicts import Verdicts
from lingraft.solver.request import Limits, Request
from lingraft.work.keeping import find_verdicts


@dataclass(frozen=True)
class Validation:
    """The first `images` of these validation images, and seconds for each."""

    data: ImageSet
    eps: Radius
    images: int
    timeout: float
    place: Place
    seed: int = 0

    def verify(self, run: Run, model: nn.Module, title: str) -> Summary:
        """The verdicts on the model of a run, which are kept there, as figures; `title` names the progress."""
        few = self.data.take(min(self.images, len(self.data)))
        request = Request(model, few.pixels(), few.labels, eps=self.eps, clip=few.clip)
        limits = Limits(self.timeout, seed=self.seed)
        verdicts = Verdicts(run, "validation", request, limits)
        return summarize(find_verdicts(request, limits, self.place, verdicts=verdicts, title=title), self.timeout)
