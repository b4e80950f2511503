"""PGD with restarts over a whole data set, spending no step on an image that is already broken."""

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor, nn

from lingraft.attack.ball import ascend
from lingraft.attack.gradient import cross_entropy, input_gradient
from lingraft.attack.noise import uniform_noise
from lingraft.attack.pgd import default_step
from lingraft.ball import Ball, Eps
from lingraft.data import ImageSet

#: called with (restarts that ended, images not broken so far)
Watch = Callable[[int, int], None]


class _Slots:
    """The images under attack now, one row each; freed rows are refilled from the queue."""

    def __init__(self, data: ImageSet, ball: Ball, seed: int, device: torch.device):
        self.data, self.ball, self.seed, self.device = data, ball, seed, device
        shape = data.images.shape[1:]
        self.image = torch.empty(0, dtype=torch.int64)
        self.restart = torch.empty(0, dtype=torch.int64)
        self.step = torch.empty(0, dtype=torch.int64)
        self.label = torch.empty(0, dtype=torch.int64, device=device)
        self.point = torch.empty(0, *shape, device=device)
        self.lower = self.upper = self.reach = self.point

    def replace(self, ended: Tensor, incoming: list[tuple[int, int]]) -> None:
        """Drop the rows where `ended` (on the CPU) and put the (image, restart) of `incoming` in."""
        image = torch.tensor([index for index, _ in incoming], dtype=torch.int64)
        restart = torch.tensor([restart for _, restart in incoming], dtype=torch.int64)
        pixels = self.data.pixels(image.to(self.data.images.device)).to(self.device)
        ball = self.ball.at(image)
        lower, upper = ball.bounds(pixels)
        noise = uniform_noise(self.seed, restart.to(self.device), image.to(self.device), tuple(pixels.shape[1:]))
        fresh = {
            "image": image,
            "restart": restart,
            "step": torch.zeros_like(image),
            "label": self.data.labels[image.to(self.data.labels.device)].to(self.device),
            "point": ball.cut(noise.mul_(ball.reach(pixels)).add_(pixels)),
            "lower": lower,
            "upper": upper,
        }
        if not isinstance(ball.eps, float):
            fresh["reach"] = ball.reach(pixels).expand_as(pixels)
        keep = ~ended
        for name, new in fresh.items():
            old = getattr(self, name)
            setattr(self, name, torch.cat([old[keep.to(old.device)], new]))

    def step_size(self, steps: int) -> float | Tensor:
        """2.5·ε/steps: a number, or for each feature of the images under attack."""
        eps = self.ball.eps
        return default_step(eps if isinstance(eps, float) else self.reach, steps)


def find_unbroken(
    model: nn.Module,
    data: ImageSet,
    candidates: Tensor,
    eps: Eps,
    *,
    steps: int = 100,
    restarts: int = 100,
    step_size: float | None = None,
    seed: int = 0,
    batch: int = 256,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
) -> Tensor:
    """Which of the images that `candidates` marks survive PGD on the cross entropy with random restarts.

    Paper: Madry et al. 2018; 100 steps and 100 restarts are those of the linearity grafting paper (Section 5).
    Shape: candidates (N,), bool → (N,), bool, both on the CPU, N = len(data). False stays False. A tensor ε is one for
    each feature or for each image; the range of values is that of the data.

    An image leaves the attack at the first iterate that is misclassified; its place is taken by the next one, so
    batches stay full as long as enough images are left. Random starts depend on (seed, image, restart) only, so the
    answer does not depend on the batch size (beyond the rounding of the network itself).
    """
    device = torch.device(device)
    unbroken = candidates.clone()
    queue = deque((int(index), 0) for index in candidates.nonzero().flatten())
    slots = _Slots(data, Ball.around(eps, data.images.shape, data.clip), seed, device)
    ended = torch.empty(0, dtype=torch.bool)
    while True:
        free = batch - int((~ended).sum())
        incoming = [queue.popleft() for _ in range(min(free, len(queue)))]
        if incoming or ended.any():
            slots.replace(ended, incoming)
        if not len(slots.image):
            return unbroken
        gradient, logits = input_gradient(model, slots.point, cross_entropy(slots.label))
        broken = (logits.argmax(1) != slots.label).cpu()
        step = slots.step_size(steps) if step_size is None else step_size
        slots.point = ascend(slots.point, gradient, step, slots.lower, slots.upper)
        slots.step += 1
        last = ~broken & (slots.step == steps)
        if last.any():  # the final iterate needs no gradient
            which = last.to(device)
            with torch.no_grad():
                broken[last] = (model(slots.point[which]).argmax(1) != slots.label[which]).cpu()
        ended = broken | last
        unbroken[slots.image[broken]] = False
        again = (ended & ~broken & (slots.restart + 1 < restarts)).nonzero().flatten()
        queue.extend((int(slots.image[row]), int(slots.restart[row]) + 1) for row in again)
        if watch is not None and ended.any():
            done = int((restarts - slots.restart[broken]).sum()) + int((ended & ~broken).sum())
            watch(done, int(unbroken.sum()))
