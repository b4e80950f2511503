"""Images a second of one step of fast adversarial training with GradAlign, against a plain implementation.

Both do the same step on the same batch of 128 images of 3×32×32 (ε = 2/255, FGSM step 1.25 ε, λ = 0.2, SGD with
momentum and weight decay) for CNN-B and ConvBig. `plain` is written out here the way the code of papers does it: the
attack calls `backward`, GradAlign computes both of its gradients anew, torch's defaults everywhere. The rows between
it and `lingraft` add what lingraft does one by one; `channels last` is a row of what was tried and is not used.

    python benchmarks/training.py [--threads N] [--rounds N] [--cpu-time] [--json]

All variants take turns in every round, and a round gives each its speed relative to `plain`; the medians are printed.
That the results are equal is checked first: loss and updated weights, to rounding, in float64 and in float32.
On a machine that does other things too, `--threads 1 --cpu-time` measures the processor time of this process alone.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.attack.ball import ascend, bounds
from lingraft.memory import kept_memory
from lingraft.model import zoo
from lingraft.training import initialize
from lingraft.training.fast import FastAdversarialLoss, misalignment
from lingraft.training.step import take_step

EPS, STEP, LAMBDA, BATCH = 2 / 255, 1.25, 0.2, 128
MODELS = ("cnn-b", "conv-big")
TARGET = 1.2

Step = Callable[[nn.Module, torch.optim.Optimizer, Tensor, Tensor, torch.Generator], float]


def plain_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, generator: torch.Generator
) -> float:
    """FGSM, then the loss, then GradAlign, each with gradients of its own."""
    delta = torch.zeros_like(images).uniform_(-EPS, EPS, generator=generator)
    start = torch.clamp(images + delta, 0, 1)
    start.requires_grad = True
    F.cross_entropy(model(start), labels).backward()
    return _rest_of_plain(model, optimizer, images, labels, start, start.grad)


def plain_step_with_input_gradient(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, generator: torch.Generator
) -> float:
    """The same, but the attack asks for the gradient of the images alone."""
    delta = torch.zeros_like(images).uniform_(-EPS, EPS, generator=generator)
    start = torch.clamp(images + delta, 0, 1)
    start.requires_grad = True
    (gradient,) = torch.autograd.grad(F.cross_entropy(model(start), labels), start)
    return _rest_of_plain(model, optimizer, images, labels, start, gradient)


def _rest_of_plain(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, start: Tensor, gradient: Tensor
) -> float:
    adversarial = start.detach() + STEP * EPS * torch.sign(gradient)
    adversarial = torch.max(torch.min(adversarial, images + EPS), images - EPS)
    adversarial = torch.clamp(adversarial, 0, 1)
    loss = F.cross_entropy(model(adversarial), labels)

    at_image = images.clone().requires_grad_(True)
    (grad1,) = torch.autograd.grad(F.cross_entropy(model(at_image), labels), at_image)
    grad1 = grad1.detach()
    at_start = start.detach().clone().requires_grad_(True)
    (grad2,) = torch.autograd.grad(F.cross_entropy(model(at_start), labels), at_start, create_graph=True)
    norm1, norm2 = (grad.pow(2).sum([1, 2, 3]).sqrt() for grad in (grad1, grad2))
    some = (norm1 != 0) & (norm2 != 0)
    grad1, grad2 = grad1[some] / norm1[some][:, None, None, None], grad2[some] / norm2[some][:, None, None, None]
    loss = loss + LAMBDA * (1 - (grad1 * grad2).sum([1, 2, 3]).mean())

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def shared_gradient_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, generator: torch.Generator
) -> float:
    """The gradient at the random start serves FGSM and GradAlign; the last backward pass is still a plain one."""
    start = torch.empty_like(images).uniform_(-EPS, EPS, generator=generator).add_(images).clamp_(0, 1)
    start.requires_grad = True
    (gradient,) = torch.autograd.grad(F.cross_entropy(model(start), labels), start, create_graph=True)
    point = ascend(start.detach(), gradient.detach(), STEP * EPS, *bounds(images, EPS))
    loss = F.cross_entropy(model(point), labels)
    at_image = images.clone().requires_grad_(True)
    (fixed,) = torch.autograd.grad(F.cross_entropy(model(at_image), labels), at_image)
    loss = loss + LAMBDA * misalignment(fixed, gradient)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def lingraft_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, generator: torch.Generator
) -> float:
    """What `lingraft train` runs."""
    return take_step(model, optimizer, FastAdversarialLoss(EPS, STEP, LAMBDA), images, labels, generator)[0]


@dataclass(frozen=True)
class Variant:
    """A step and how it is set up."""

    name: str
    step: Step
    fused: bool = False
    kept: bool = False
    channels_last: bool = False
    used: bool = True


VARIANTS = (
    Variant("plain", plain_step),
    Variant("+ only input gradients in the attack", plain_step_with_input_gradient),
    Variant("+ one gradient for FGSM and GradAlign", shared_gradient_step),
    Variant("+ no image gradient in the last pass", lingraft_step),
    Variant("+ fused optimizer", lingraft_step, fused=True),
    Variant("+ freed memory kept (lingraft)", lingraft_step, fused=True, kept=True),
    Variant("  and channels last", lingraft_step, fused=True, kept=True, channels_last=True, used=False),
)


class Trial:
    """A network of its own, from the same weights, and the batch."""

    def __init__(self, variant: Variant, model: str, batch: int = BATCH, dtype: torch.dtype = torch.float32):
        self.variant = variant
        layout = torch.channels_last if variant.channels_last else torch.contiguous_format
        torch.manual_seed(0)
        self.model = initialize(zoo.build(model)).to(dtype=dtype, memory_format=layout)
        self.images = torch.rand(batch, 3, 32, 32, dtype=dtype).to(memory_format=layout)
        self.labels = torch.randint(10, (batch,))
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=variant.fused or None
        )
        self.generator = torch.Generator().manual_seed(1)

    def step(self) -> float:
        return self.variant.step(self.model, self.optimizer, self.images, self.labels, self.generator)

    def time(self, clock: Callable[[], float], steps: int) -> float:
        """Seconds a step, after one that is not counted."""
        with kept_memory() if self.variant.kept else nullcontext():
            self.step()
            begun = clock()
            for _ in range(steps):
                self.step()
            return (clock() - begun) / steps


def largest_difference(model: str, dtype: torch.dtype, batch: int) -> dict[str, float]:
    """How far loss and weights of each variant are from `plain` after one step: relative to the size of the step.

    Channels last is left out: its noise is drawn in the order of its memory, so it trains on other starts.
    """
    reference = Trial(VARIANTS[0], model, batch, dtype)
    before = [parameter.detach().clone() for parameter in reference.model.parameters()]
    loss = reference.step()
    differences = {}
    for variant in VARIANTS[1:]:
        if variant.channels_last:
            continue
        trial = Trial(variant, model, batch, dtype)
        worst = abs(trial.step() - loss) / abs(loss)
        for old, a, b in zip(before, reference.model.parameters(), trial.model.parameters(), strict=True):
            worst = max(worst, ((a - b).abs().max() / (a - old).abs().max()).item())
        differences[variant.name] = worst
    return differences


def measure(model: str, rounds: int, steps: int, clock: Callable[[], float]) -> list[dict[str, Any]]:
    trials = [Trial(variant, model) for variant in VARIANTS]
    seconds = [[trial.time(clock, steps) for trial in trials] for _ in range(rounds)]
    rows = []
    for number, variant in enumerate(VARIANTS):
        times = [of_round[number] for of_round in seconds]
        ratios = [of_round[0] / of_round[number] for of_round in seconds]
        gains = [of_round[max(number - 1, 0)] / of_round[number] for of_round in seconds]
        rows.append(
            {
                "variant": variant.name,
                "images_per_second": BATCH / statistics.median(times),
                "speed_up": statistics.median(ratios),
                "speed_up_range": [min(ratios), max(ratios)],
                "gain_of_this_row": statistics.median(gains),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=2, help="timed steps of each variant in a round")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    result: dict[str, Any] = {"threads": arguments.threads, "torch": str(torch.__version__), "batch": BATCH}
    reached = True
    for model in MODELS:
        exact = largest_difference(model, torch.float64, batch=16)
        single = largest_difference(model, torch.float32, batch=BATCH)
        assert max(exact.values()) < 1e-9, exact
        assert max(single.values()) < 1e-3, single
        rows = measure(model, arguments.rounds, arguments.steps, clock)
        ours = [row for row, variant in zip(rows, VARIANTS, strict=True) if variant.used][-1]
        reached &= ours["speed_up"] >= TARGET
        result[model] = {
            "rows": rows,
            "largest_difference_float64": max(exact.values()),
            "largest_difference_float32": max(single.values()),
        }
        if not arguments.json:
            print(
                f"\n{zoo.MODELS[model].title}, batch {BATCH}, {arguments.threads} threads; results equal to "
                f"{max(exact.values()):.0e} of a step in float64, {max(single.values()):.0e} in float32"
            )
            print(f"{'':42}{'images/s':>9}{'against plain':>22}{'gain of the row':>17}")
            for row in rows:
                low, high = row["speed_up_range"]
                print(
                    f"{row['variant']:42}{row['images_per_second']:9.0f}{row['speed_up']:9.2f}"
                    f" ({low:.2f} … {high:.2f}){100 * (row['gain_of_this_row'] - 1):14.0f} %"
                )
    if arguments.json:
        print(json.dumps(result, indent=2))
    if not reached:
        sys.exit(f"lingraft is less than {TARGET} times as fast as the plain step")


if __name__ == "__main__":
    main()
