"""What a batch costs beside a training step.

The loader: CIFAR-10-sized images (random, 45,000 of 3×32×32), shuffled, cropped and flipped, batches of 128. The step:
three plain forward and backward passes of CNN-B on such a batch, a lower bound of fast adversarial training with
GradAlign (the gradients at the image and at a random start, and the training pass, part of it twice differentiated).
Beside the loader of lingraft, the same batch made image by image, as a data set with per-image transforms does it.

    python benchmarks/loader.py [--threads N] [--rounds N] [--json]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from lingraft.data import DATASETS, Batches, ImageSet
from lingraft.model import zoo

LIMIT = 0.03
BATCH = 128


def one_by_one(data: ImageSet, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """The same kind of batches, each image converted, padded, cropped and flipped on its own, then stacked."""
    for index in torch.randperm(len(data), generator=generator).split(BATCH):
        images = []
        for i in index.tolist():
            top, left = torch.randint(9, (2,), generator=generator).tolist()
            image = F.pad(data.images[i].float() / 255, (4, 4, 4, 4))[:, top : top + 32, left : left + 32]
            images.append(image.flip(2) if torch.randint(2, (), generator=generator) else image)
        yield torch.stack(images), data.labels[index]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=32, help="batches and steps timed, in turn")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    generator = torch.Generator().manual_seed(0)
    spec = DATASETS["cifar10"]
    count = spec.train_images - spec.validation_images
    images = torch.randint(256, (count, *spec.input_shape), dtype=torch.uint8, generator=generator)
    data = ImageSet(images, torch.randint(spec.classes, (count,), generator=generator))
    model = zoo.build("cnn-b", mean=spec.mean, std=spec.std)

    pixels, labels = next(iter(Batches(data, BATCH)))

    def step() -> None:
        for _ in range(3):
            model.zero_grad()
            F.cross_entropy(model(pixels), labels).backward()

    step()
    # In turn, so that whatever else the machine does hits all three alike. Means: the loader works ahead by several
    # batches at a time, and draws the epoch's random numbers in the first, which counts in full here.
    ours = iter(Batches(data, BATCH, shuffle=True, augment=True, generator=generator))
    plain = one_by_one(data, generator)
    times: dict[str, list[float]] = {"loader": [], "one by one": [], "step": []}
    for _ in range(options.rounds):
        times["loader"].append(seconds(lambda: next(ours)))
        times["one by one"].append(seconds(lambda: next(plain)))
        times["step"].append(seconds(step))
    mean = {name: statistics.fmean(values) for name, values in times.items()}
    result = {
        "threads": options.threads,
        "batch": BATCH,
        "loader_ms": 1e3 * mean["loader"],
        "one_by_one_ms": 1e3 * mean["one by one"],
        "step_ms": 1e3 * mean["step"],
        "share_of_step": mean["loader"] / mean["step"],
        "limit": LIMIT,
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(f"batch of {BATCH}, {options.threads} threads, means of {options.rounds}")
    print(f"  loader      {result['loader_ms']:8.2f} ms")
    print(f"  one by one  {result['one_by_one_ms']:8.2f} ms")
    print(f"  step        {result['step_ms']:8.2f} ms")
    verdict = "under" if result["share_of_step"] < LIMIT else "NOT under"
    print(f"  loader / step {result['share_of_step']:.2%}, {verdict} {LIMIT:.0%}")


if __name__ == "__main__":
    main()
