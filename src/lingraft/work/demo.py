"""The demo: the whole story on scikit-learn's handwritten digits, one short function a step."""

import platform
import time
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.markup import escape
from torch import Tensor, nn

from lingraft.attack import pgd
from lingraft.data import DATASETS, ImageSet, load
from lingraft.device import limited_threads, resolve_device
from lingraft.grafting import FineTuning, GraftingConfig, fine_tuning_defaults, score
from lingraft.model import zoo
from lingraft.randomness import derive_generator
from lingraft.report.accuracies import accuracies
from lingraft.report.panels import style
from lingraft.report.run_figures import save_figure
from lingraft.report.write import write_report
from lingraft.runs import Run
from lingraft.runs.holding import holding
from lingraft.solver.budget import usable_cores
from lingraft.training import Destination, TrainingConfig, TrainingData, initialize
from lingraft.work.evaluate import evaluate
from lingraft.work.train import described, train_and_keep
from lingraft.work.tune import tune_and_keep
from lingraft.work.verify import verify

DATA, MODEL, EPS = "digits", "digits-cnn", 0.1

#: Shares of the neurons to graft; images to verify, and seconds for each: twice what the longest proof of a grafted
#: network takes (docs/results.md), so that the verdicts on these are the same on somewhat slower and busier machines.
RATIOS, IMAGES, TIMEOUT = (0.5, 0.8), 20, 5.0


def demo(out: str | Path = "runs/demo", *, seed: int = 0, device: str = "auto", quiet: bool = False) -> dict[str, Any]:
    """The whole story on small handwritten digits: train, graft, attack and verify; gives the figures of every network.

    Prints as it goes (unless `quiet`); everything made is in the folder `out`. Takes one to two minutes.
    """
    folder, where = Path(out), resolve_device(device)
    # The networks here are so small that a second thread gains nothing, and costs much where cores are busy.
    with holding(folder, "the demo begins anew"), limited_threads(1):
        return _tell(folder, seed, where, quiet)


def _tell(folder: Path, seed: int, device: torch.device, quiet: bool) -> dict[str, Any]:
    begun = time.perf_counter()
    console = Console(highlight=False, quiet=quiet, soft_wrap=True)
    console.print(f"[bold]lingraft demo[/]: {DATASETS[DATA].title}; an attacker may change every pixel by ±{EPS}.")
    console.print(
        f"SA: accuracy. RA: accuracy under attack. VA: [bold]proven[/], of {IMAGES} test images, {TIMEOUT:g} s each on"
        f" this machine ({escape(machine())}). UNR: unstable neurons.\n"
    )
    test = load(DATA, "test")
    figures: dict[str, Any] = {}

    def measured(name: str, title: str, model: nn.Module) -> None:
        figures[name] = measure(Run(folder / name), model, test, seed)
        console.print(f"  {title:<28}{describe(figures[name])}")

    standard = train_network(Run(folder / "standard"), 0.0, seed, device)
    measured("standard", "standard training", standard)
    robust = train_network(Run(folder / "robust"), EPS, seed, device)
    measured("robust", "adversarial training", robust)
    for ratio in RATIOS:
        name = f"grafted-{round(100 * ratio)}"
        grafted = graft_network(Run(folder / "robust"), Run(folder / name), robust, ratio, seed, device)
        measured(name, f"+ {ratio:.0%} of neurons grafted", grafted)
    pictures = [
        draw_figures(Run(folder / "robust"), figures),
        draw_attacks(Run(folder / "robust"), {"standard": standard, "robust": robust}, test, seed, device),
    ]
    report = write_report([folder / name for name in figures], folder / "report.html")
    seconds = time.perf_counter() - begun
    console.print(f"\n  pictures: [cyan]{'  '.join(map(str, pictures))}[/]   ({seconds:.0f} s)")
    console.print(f"  [bold]report[/]: [cyan]{report}[/]   (every image and its verdict; open it in a browser)")
    return {
        **figures,
        "pictures": [str(picture) for picture in pictures],
        "report": str(report),
        "machine": machine(),
        "seconds": round(seconds, 1),
    }


def describe(figures: dict[str, Any]) -> str:
    """One line: SA, RA, VA, UNR, and what became of the images that were not proven."""
    proof = figures["verification"]
    unr = "" if proof["unr"] is None else f"   UNR {proof['unr']:5.1%}"
    return (
        f"SA {figures['sa']:6.1%}   RA {figures['ra']:6.1%}   VA [bold]{proof['va']:6.1%}[/]{unr}"
        f"   ({proof['falsified']} broken, {proof['unknown']} undecided)"
    )


def train_network(run: Run, eps: float, seed: int, device: torch.device) -> nn.Module:
    """Train the small CNN, with an attack of radius `eps` or, if that is 0, without one."""
    spec = DATASETS[DATA]
    torch.manual_seed(seed)
    model = initialize(zoo.build(MODEL, spec.input_shape, spec.classes, spec.mean, spec.std))
    config = TrainingConfig(eps, epochs=20, batch=64, lr=0.05, schedule="one-cycle", seed=seed)
    destination = Destination(run, described(MODEL, data=DATA, eps=EPS, seed=seed), restart=True)
    train_and_keep(model, _material(), config, destination, device=device, on_epoch=())
    return model


def graft_network(parent: Run, run: Run, model: nn.Module, ratio: float, seed: int, device: torch.device) -> nn.Module:
    """Replace the unstable, insignificant neurons by lines and fine-tune (the paper, Section 4)."""
    config = GraftingConfig(EPS, ratio=ratio, images=500, bound_images=50, seed=seed)
    tuning = FineTuning(fine_tuning_defaults(EPS, epochs=8, batch=64, lr=0.005, seed=seed), line_lr=0.05)
    description = parent.describe().model_copy(update={"parent": str(parent.path)})
    destination, material = Destination(run, description, restart=True), _material()
    grafted, _ = tune_and_keep(model, material, config, tuning, destination, device=device, on_epoch=())
    score(grafted, material.train, config).save(run.grafted_scores_path)
    return grafted


def _material() -> TrainingData:
    return TrainingData(load(DATA, "train"), load(DATA, "validation"))


def measure(run: Run, model: nn.Module, test: ImageSet, seed: int) -> dict[str, Any]:
    """SA and RA on all test images, VA and UNR on the first ones, kept in the run."""
    result = evaluate(model, DATA, eps=EPS, steps=40, images="all", seed=seed, run=run)
    run.verdicts_path.unlink(missing_ok=True)
    found = verify(model.eval(), IMAGES, data=DATA, eps=EPS, timeout=TIMEOUT, seed=seed, run=run)
    return {**result.as_dict(), "verification": found.summary.as_dict()}


def draw_figures(run: Run, figures: dict[str, Any]) -> Path:
    """SA, RA and VA of the three robust networks, as the report shows them, with the machine that VA depends on."""
    titles = {"robust": "adversarial training"}
    titles |= {f"grafted-{round(100 * ratio)}": f"+ {ratio:.0%} of neurons grafted" for ratio in RATIOS}
    bars = {
        title: {"sa": figures[name]["sa"], "ra": figures[name]["ra"], "va": figures[name]["verification"]["va"]}
        for name, title in titles.items()
    }
    with style():
        figure = Figure(figsize=(6.6, 3.1), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        accuracies(bars).draw(axes)
        about = f"Handwritten digits, every pixel may change by ±{EPS}; VA: {IMAGES} images, {TIMEOUT:g} s each"
        axes.set_title(f"{about}\n{machine()}", fontsize=8.5, weight="normal")
        return save_figure(figure, run, "story")[1]


def machine() -> str:
    """The processor, as far as the system says, and its cores: what is proven within seconds depends on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{next(names, '') or platform.processor() or platform.machine()}, {usable_cores()} cores"


def draw_attacks(run: Run, models: dict[str, nn.Module], test: ImageSet, seed: int, device: torch.device) -> Path:
    """One digit of each class, and what PGD makes of it against each network, with what that network then sees."""
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
