"""Networks of other kinds than the public problems', and problems on them that need branching, for `verify.py`.

    LINGRAFT_DATA=folder python benchmarks/own_set.py --out own
    LINGRAFT_PROBLEMS=own python benchmarks/verify.py

So that nothing in the search is tuned to a few folders. Each network is trained for a minute or so of one core, with
attacks of one step; its problems are the first test images that take the search a while to decide, and the first that
it leaves open. About the same come out again on the same machine; what is there is not made again.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lingraft import ImageSet, export_onnx, graft, load_onnx, sites
from lingraft.data import load
from lingraft.model import zoo
from lingraft.pool.problems import decide
from lingraft.solver.request import Request
from lingraft.solver.verifier import Verifier

#: Problems of each radius: so many that the search decides, after a second at least, and that it does not.
DECIDED, LEAST, OPEN = 2, 1.0, 1

#: The images that are tried for them, and the CPU-seconds for each and for all.
TRIED, SECONDS, TRYING = 60, 8.0, 60.0


@dataclass
class Kind:
    """How a network is made and trained, and the radii of its problems; `grafted` is a share of its neurons."""

    build: Callable[[], nn.Module]
    data: str
    train_eps: float
    epochs: int
    eps: tuple[float, ...]
    images: int = 60_000
    grafted: float = 0.0


def connected(depth: int, width: int, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    """Fully connected, `depth` hidden layers."""
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(784, width), activation()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), activation()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def wide_cnn() -> nn.Module:
    """Two convolutions of many channels."""
    first, second = nn.Conv2d(1, 32, 5, stride=2, padding=2), nn.Conv2d(32, 64, 4, stride=2, padding=1)
    return nn.Sequential(
        first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def deep_cnn() -> nn.Module:
    """Six convolutions of few channels."""
    layers: list[nn.Module] = []
    for before, after, stride in ((1, 8, 2), (8, 8, 1), (8, 16, 2), (16, 16, 1), (16, 16, 2), (16, 16, 1)):
        layers += [nn.Conv2d(before, after, 3, stride=stride, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 16, 10))


KINDS = {
    "fc_4x256": Kind(lambda: connected(4, 256), "mnist", 0.03, 8, (0.02, 0.03)),
    "fc_6x256": Kind(lambda: connected(6, 256), "mnist", 0.03, 8, (0.015, 0.025)),
    "fc_9x200": Kind(lambda: connected(9, 200), "mnist", 0.03, 8, (0.015, 0.02)),
    "sigmoid_6x200": Kind(lambda: connected(6, 200, nn.Sigmoid), "mnist", 0.0, 12, (0.01, 0.02)),
    "wide_cnn": Kind(wide_cnn, "mnist", 0.1, 2, (0.06, 0.1)),
    "deep_cnn": Kind(deep_cnn, "mnist", 0.05, 4, (0.03, 0.05)),
    "deep_cnn_graft": Kind(deep_cnn, "mnist", 0.05, 4, (0.06, 0.08), grafted=0.5),
    "fc_4x256_graft": Kind(lambda: connected(4, 256), "mnist", 0.03, 4, (0.03, 0.05), grafted=0.5),
    "sigmoid_cnn": Kind(lambda: zoo.build("sigmoid-cnn", (1, 28, 28)), "mnist", 0.05, 2, (0.05, 0.08)),
    "resnet_4b": Kind(lambda: zoo.build("resnet-4b"), "cifar10", 2 / 255, 1, (0.5 / 255, 1 / 255), images=20_000),
}


def fit(model: nn.Module, data: ImageSet, kind: Kind, epochs: int) -> None:
    """Adam, with the images moved by one step of an attack."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    count = min(kind.images, len(data.labels))
    steps = epochs * (count // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    model.train()
    for _ in range(epochs):
        for some in torch.randperm(count)[: count // 128 * 128].split(128):
            images, labels = pixels(data, some), data.labels[some]
            if kind.train_eps:
                images = attacked(model, images, labels, kind.train_eps)
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
            schedule.step()
    model.eval()


def pixels(data: ImageSet, which: Tensor | slice) -> Tensor:
    """Some of the images, in [0, 1]."""
    return data.images[which].float() / 255


def attacked(model: nn.Module, images: Tensor, labels: Tensor, eps: float) -> Tensor:
    """One step from a random point of the ball."""
    start = (images + eps * (2 * torch.rand_like(images) - 1)).clamp(0, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(model(start), labels), start)
    moved = start.detach() + 1.25 * eps * gradient.sign()
    return torch.minimum(torch.maximum(moved, images - eps), images + eps).clamp(0, 1)


def train(name: str, kind: Kind, path: Path) -> None:
    """Train one network and write it."""
    torch.manual_seed(0)
    images, test = load(kind.data, "train"), load(kind.data, "test")
    shape = tuple(test.images.shape[1:])
    model = kind.build()
    fit(model, images, kind, kind.epochs)
    if kind.grafted:
        mask = {site.name: torch.rand(site.shape) < kind.grafted for site in sites(model, input_shape=shape)}
        model = graft(model, mask, input_shape=shape)
        fit(model, images, kind, max(1, kind.epochs // 2))
    with torch.no_grad():
        right = (model(pixels(test, slice(2000))).argmax(1) == test.labels[:2000]).float().mean()
    path.parent.mkdir(parents=True, exist_ok=True)
    export_onnx(model, path, input_shape=shape)
    print(f"{name}: SA {100 * right:.1f} %", flush=True)


def choose(name: str, kind: Kind, folder: Path) -> None:
    """Choose the problems of the network in a folder, and write them there."""
    test, model = load(kind.data, "test"), load_onnx(folder / "model.onnx")
    chosen: list[tuple[int, float]] = []
    for eps in kind.eps:
        request = Request(model, pixels(test, slice(TRIED)), test.labels[:TRIED], eps=eps)
        verifier = Verifier(request.network)
        wanted, begun = {"decided": DECIDED, "open": OPEN}, time.process_time()
        for i in range(TRIED):
            started = time.process_time()
            if started - begun > TRYING or not any(wanted.values()):
                break
            result = decide(verifier, request.problem(i), SECONDS, float("inf"), i)
            seconds = time.process_time() - started
            group = "open" if result.verdict == "unknown" else "decided"
            if wanted[group] and (group == "open" or (result.domains and seconds > LEAST)):
                chosen.append((i, eps))
                wanted[group] -= 1
                print(f"{name} {i}, ε {eps:.4g}: {result.verdict}, {seconds:.1f} s, {result.domains}", flush=True)
    index = torch.tensor([i for i, _ in chosen], dtype=torch.long)
    radius = torch.tensor([eps for _, eps in chosen])[:, None, None, None]
    images = pixels(test, index)
    lower, upper = (images - radius).clamp(min=0), (images + radius).clamp(max=1)
    (folder / "peers.csv").write_text("i,verifier,verdict,cpu_seconds,domains\n", encoding="utf-8")
    np.savez(
        folder / "problems.npz",
        image=images.numpy(),
        label=test.labels[index].numpy(),
        lower=lower.numpy(),
        upper=upper.numpy(),
        index=index.numpy(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    time.monotonic = time.process_time  # so that limits, too, are in CPU-seconds, whatever else the machine does
    for name in given.names or KINDS:
        folder = given.out / name
        if not (folder / "model.onnx").exists():
            train(name, KINDS[name], folder / "model.onnx")
        if not (folder / "problems.npz").exists():
            choose(name, KINDS[name], folder)


if __name__ == "__main__":
    main()
