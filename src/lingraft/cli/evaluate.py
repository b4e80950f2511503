"""`lingraft evaluate`."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.options import (
    Device,
    Json,
    OwnModel,
    RunData,
    RunEps,
    RunFolder,
    Seed,
    Threads,
    ValueRange,
    given_network,
    next_step,
    print_json,
)


@app.command()
def evaluate(
    folder: RunFolder = None,
    model: OwnModel = None,
    attack: Annotated[str, typer.Option(help="pgd or fgsm.", autocompletion=offer("attack"))] = "pgd",
    steps: Annotated[int, typer.Option(help="Steps of PGD (the paper: 100).")] = 20,
    restarts: Annotated[int, typer.Option(help="Random restarts of PGD (the paper: 100).")] = 5,
    step_size: Annotated[float | None, typer.Option(help="Step of PGD in pixels. (default: 2.5·ε/steps)")] = None,
    images: Annotated[
        str | None, typer.Option(help="Attack this many of the test images, the first ones, or all. (default: 1000)")
    ] = None,
    eps: RunEps = None,
    clip: ValueRange = "data",
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
    given = given_network(folder, model)
    result = lingraft.evaluate(
        given.network,
        data,
        eps=eps,
        clip=clip,
        attack=attack,
        steps=steps,
        restarts=restarts,
        step_size=step_size,
        images=images,
        batch=batch,
        intervals=intervals,
        seed=seed,
        device=device,
        threads=threads,
    )
    if as_json:
        print_json({"run": given.name, **result.as_dict()})
    else:
        title = f"{given.name}: {result.data}, ε = {result.attack.eps:.4g}"
        table = Table("", "accuracy", "images", title=title, title_justify="left")
        table.add_row("standard (SA)", f"{result.sa:.2%}", f"{result.images_sa:,}")
        table.add_row(f"robust (RA), {result.attack}", f"{result.ra:.2%}", f"{result.images:,}")
        if result.certified_by_intervals is not None:
            table.add_row("certified by intervals", f"{result.certified_by_intervals:.2%}", f"{result.images_sa:,}")
        Console().print(table)
    if (steps, restarts) != (100, 100) and attack == "pgd":
        next_step("the same with --steps 100 --restarts 100   (the paper's attack; takes far longer)")
