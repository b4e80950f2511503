"""Looking for counterexamples inside a region: projected gradient descent on the margins (Madry et al. 2018).

Steps go along the signs of a running sum of gradients (Dong et al. 2018): near the lowest points single gradients jump
between the pieces of a network, and steps along them end higher.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from lingraft.solver.budget import UNLIMITED, Budget
from lingraft.solver.clock import worked
from lingraft.solver.intervals import work
from lingraft.solver.network import Network
from lingraft.solver.region import Region

#: Products that a step of an attack computes between two looks at the clock, at least those of one image.
CHUNK = 300_000_000

#: What is left of the gradients before in each step.
MOMENTUM = 0.75

#: Points of a step, those with the lowest margins, that `confirm` is asked about.
ASKED = 3


class Falsifier:
    """Attacks the margins spec·logits + offset of one region, in float32; a witness makes one of them negative.

    With `confirm`, a witness is a point where one is 0 or negative and that it confirms, for where equality decides.
    Exhausted is raised when the time of the `budget` is over.
    """

    def __init__(
        self,
        network: Network,
        region: Region,
        spec: Tensor,
        offset: Tensor,
        seed: int = 0,
        budget: Budget = UNLIMITED,
        confirm: Callable[[Tensor], bool] | None = None,
    ):
        self.network, self.budget, self.confirm = network, budget, confirm
        self.together = max(1, CHUNK // work(network))
        self.lower, self.upper = region.narrowed()
        self.spec, self.offset = spec.float(), offset.float()
        self.generator = torch.Generator().manual_seed(seed)
        #: the least of each margin (L,) that was seen
        self.lowest = torch.full_like(self.offset, torch.inf)
        #: seconds of work that steps took in all, and how many points made one
        self.seconds, self.moved = 0.0, 0

    def margins(self, images: Tensor) -> Tensor:
        """Margins (N, L) of float32 images (N, *input_shape)."""
        return self.network.forward(images) @ self.spec.t() + self.offset

    @property
    def price(self) -> float:
        """Seconds that a step of one point takes, by those so far."""
        return self.seconds / max(1, self.moved)

    def search(self, margins: Tensor, steps: int, restarts: int = 1) -> Tensor | None:
        """A witness against one of the given margins (K,), from random starts; None if none was found."""
        for _ in range(restarts):
            noise = torch.rand(len(margins), *self.lower.shape, generator=self.generator).to(self.lower)
            witness = self.descend(self.lower + (self.upper - self.lower) * noise, margins, steps)
            if witness is not None:
                return witness
        return None

    def descend(self, images: Tensor, margins: Tensor, steps: int) -> Tensor | None:
        """Push the chosen margin (N,) of every image down for some steps; a witness as soon as there is one."""
        if bool((self.lower > self.upper).any()):
            return None  # no float32 image lies in the region
        images = torch.minimum(torch.maximum(images.float(), self.lower), self.upper)
        size, going = (self.upper - self.lower) / 2, torch.zeros_like(images)
        each = [1] * (images.dim() - 1)
        for step in range(steps + 1):
            gradients, started = [], worked(self.lower.device)
            for some, chosen in zip(images.split(self.together), margins.split(self.together), strict=True):
                self.budget.check_time()
                points = some.detach().requires_grad_(step < steps)
                values = self.margins(points)
                self.lowest = torch.minimum(self.lowest, values.detach().amin(0))
                witness = self._witness(points.detach(), values.detach().amin(1))
                if witness is not None:
                    return witness
                if step < steps:
                    gradients += torch.autograd.grad(values.gather(1, chosen[:, None]).sum(), points)
            if step < steps:
                gradient = torch.cat(gradients)
                length = gradient.abs().flatten(1).mean(1).clamp(min=torch.finfo(gradient.dtype).tiny)
                going = MOMENTUM * going + gradient / length.view(-1, *each)
                images = images - size * (1 - step / steps) ** 2 * going.sign()
                images = torch.minimum(torch.maximum(images, self.lower), self.upper)
                self.seconds += worked(self.lower.device) - started
                self.moved += len(images)
        return None

    def _witness(self, points: Tensor, lowest: Tensor) -> Tensor | None:
        """One of the points, whose lowest margins (N,) are given, that is a witness."""
        if self.confirm is None:
            broken = lowest < 0
            return points[broken.nonzero()[0, 0]] if bool(broken.any()) else None
        for number in lowest.argsort()[:ASKED].tolist():
            if float(lowest[number]) <= 0 and self.confirm(points[number]):
                return points[number]
        return None
