"""The demo: the whole story on scikit-learn's handwritten digits, one short function a step."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from lingraft import zoo
from lingraft.attack import pgd
from lingraft.data import DATASETS, ImageSet, load
from lingraft.evaluation import Attack, Evaluation, evaluate
from lingraft.report.figures import save_figure
from lingraft.runs import ModelDescription, Run
from lingraft.training import TrainingConfig, initialize, train
from lingraft.training.randomness import derive_generator

DATA, MODEL, EPS = "digits", "digits-cnn", 0.1


@contextmanager
def one_thread() -> Iterator[None]:
    """The networks here are so small that a second thread gains nothing, and costs much where cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@one_thread()
def tell(folder: Path, seed: int, device: torch.device, *, quiet: bool = False) -> dict[str, Any]:
    """Run every step, print as it goes (unless `quiet`), and give the figures."""
    begun = time.perf_counter()
    console = Console(highlight=False, quiet=quiet, soft_wrap=True)
    console.print(f"[bold]lingraft demo[/]: {DATASETS[DATA].title}; an attacker may change every pixel by ±{EPS}\n")
    test = load(DATA, "test")
    models: dict[str, nn.Module] = {}
    figures: dict[str, Any] = {}
    for name, eps in (("standard", 0.0), ("robust", EPS)):
        run = Run(folder / name)
        models[name] = train_network(run, eps, seed, device)
        result = measure(run, models[name], test, seed, device)
        figures[name] = result.as_dict()
        console.print(
            f"  {name} training".ljust(22)
            + f"accuracy [bold]{result.sa:6.1%}[/]   under attack ({result.attack}) [bold]{result.ra:6.1%}[/]"
        )
    picture = draw_attacks(Run(folder / "robust"), models, test, seed, device)
    seconds = time.perf_counter() - begun
    console.print(f"\n  picture: [cyan]{picture}[/]   ({seconds:.0f} s)")
    return {**figures, "picture": str(picture), "seconds": round(seconds, 1)}


def train_network(run: Run, eps: float, seed: int, device: torch.device) -> nn.Module:
    """Train the small CNN, with an attack of radius `eps` or, if that is 0, without one."""
    spec = DATASETS[DATA]
    torch.manual_seed(seed)
    model = initialize(zoo.build(MODEL, spec.input_shape, spec.classes, spec.mean, spec.std))
    config = TrainingConfig(eps, epochs=20, batch=64, lr=0.05, schedule="one-cycle", seed=seed)
    description = ModelDescription(
        architecture=MODEL,
        input_shape=spec.input_shape,
        classes=spec.classes,
        mean=list(spec.mean),
        std=list(spec.std),
        data=DATA,
        eps=EPS,
        seed=seed,
    )
    images, validation = load(DATA, "train"), load(DATA, "validation")
    train(
        model,
        images,
        validation,
        config,
        run,
        description,
        device=device,
        restart=True,
        report=lambda epoch: None,
    )
    return model


def measure(run: Run, model: nn.Module, test: ImageSet, seed: int, device: torch.device) -> Evaluation:
    """Standard and robust accuracy on all test images, kept in the run."""
    result = evaluate(model, test, Attack(EPS, steps=40, restarts=5, seed=seed), device=device)
    run.add_to_summary("evaluation", {f"{DATA} {result.name}": {"data": DATA, **result.as_dict()}})
    return result


def draw_attacks(run: Run, models: dict[str, nn.Module], test: ImageSet, seed: int, device: torch.device) -> Path:
    """One digit of each class, and what PGD makes of it against each network, with what that network then sees."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    chosen = torch.tensor([int((test.labels == label).nonzero()[0]) for label in range(DATASETS[DATA].classes)])
    images, labels = test.pixels(chosen).to(device), test.labels[chosen].to(device)
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(1 + len(models), len(chosen))
    _draw_row(grid[0], "the digit", images, labels, labels)
    for row, (name, model) in zip(grid[1:], models.items(), strict=True):
        attacked = pgd(model, images, labels, EPS, derive_generator(device, seed, "demo"), steps=40)
        with torch.no_grad():
            _draw_row(row, f"attacked,\n{name} training", attacked, model(attacked).argmax(1), labels)
    figure.suptitle(f"What each network takes the attacked digits for (every pixel changed by at most {EPS})")
    return save_figure(figure, run, "attacks")[1]


def _draw_row(row: Any, title: str, images: Tensor, predictions: Tensor, labels: Tensor) -> None:
    for axes, image, prediction, label in zip(row, images.cpu(), predictions.tolist(), labels.tolist(), strict=True):
        axes.imshow(image[0], cmap="gray_r", vmin=0, vmax=1)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel(str(prediction), color="tab:green" if prediction == label else "tab:red", weight="bold")
    row[0].set_ylabel(title, rotation=0, ha="right", va="center")
