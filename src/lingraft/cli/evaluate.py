"""`lingraft evaluate`."""

from typing import Annotated

import typer

from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.options import (
    Device,
    Json,
    RunData,
    RunEps,
    RunFolder,
    Seed,
    Threads,
    next_step,
    parse_eps,
    print_json,
    use_threads,
)
from lingraft.errors import LingraftError


@app.command()
def evaluate(
    folder: RunFolder,
    attack: Annotated[str, typer.Option(help="pgd or fgsm.", autocompletion=offer("attack"))] = "pgd",
    steps: Annotated[int, typer.Option(help="Steps of PGD (the paper: 100).")] = 20,
    restarts: Annotated[int, typer.Option(help="Random restarts of PGD (the paper: 100).")] = 5,
    step_size: Annotated[float | None, typer.Option(help="Step of PGD in pixels. (default: 2.5·ε/steps)")] = None,
    images: Annotated[
        str | None, typer.Option(help="Attack this many of the test images, the first ones, or all. (default: 1000)")
    ] = None,
    eps: RunEps = None,
    data: RunData = None,
    batch: Annotated[int, typer.Option(help="Images attacked at a time; does not change the result.")] = 256,
    intervals: Annotated[
        bool | None,
        typer.Option(help="Say what intervals alone certify. (default: of runs trained for certificates)"),
    ] = None,
    threads: Threads = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Measure standard accuracy on all test images and robust accuracy against an attack."""
    from rich.console import Console
    from rich.table import Table

    from lingraft.attack.evaluation import Attack
    from lingraft.attack.evaluation import evaluate as measure
    from lingraft.cli.holding import hold
    from lingraft.data import load as load_data
    from lingraft.device import resolve_device
    from lingraft.runs import Run, load
    from lingraft.training.differentiable.certify import certified_by_intervals

    run = Run(folder)
    description = run.describe()
    radius = description.radius(None if eps is None else parse_eps(eps))
    data = description.data_set(data)
    plan = Attack(radius, attack, steps, restarts, step_size, seed)
    where = resolve_device(device)
    use_threads(threads)
    hold(run.path)
    model = load(run, device=where)
    test = load_data(data, "test")
    description.check_fits(test, "test")
    count = _count(images, len(test))
    result = measure(model, test, plan, images=count, batch=batch, device=where)
    figures = {"data": data, **result.as_dict()}
    if intervals is None:
        trained = run.summary().training
        intervals = trained is not None and trained.best is not None and trained.best.certified is not None
    if intervals:
        certified = certified_by_intervals(model, test, radius, batch=batch, device=where)
        figures |= {"certified_by_intervals": int(certified.sum()) / len(test), "images_certified": len(test)}
    run.add_to_summary("evaluation", figures, f"{data} {result.name}")
    if as_json:
        print_json({"run": str(run.path), **figures})
    else:
        table = Table("", "accuracy", "images", title=f"{run.path}: {data}, ε = {radius:.4g}", title_justify="left")
        table.add_row("standard (SA)", f"{result.sa:.2%}", f"{result.images_sa:,}")
        table.add_row(f"robust (RA), {result.attack}", f"{result.ra:.2%}", f"{result.images:,}")
        if intervals:
            table.add_row("certified by intervals", f"{figures['certified_by_intervals']:.2%}", f"{len(test):,}")
        Console().print(table)
    if (steps, restarts) != (100, 100) and attack == "pgd":
        next_step(f"lingraft evaluate {run.path} --steps 100 --restarts 100   (the paper's attack; takes far longer)")


def _count(text: str | None, available: int) -> int:
    """How many test images to attack."""
    if text is None:
        return min(1000, available)
    if text == "all":
        return available
    try:
        return int(text)
    except ValueError as error:
        raise LingraftError(f"--images {text!r} is not a number of images. Write it like 500, or all.") from error
