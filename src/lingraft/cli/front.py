"""`lingraft front`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.options import Device, Json, Seed, TestData, Threads, Workers, next_step, print_json
from lingraft.cli.ray_option import RayAddress, RayCommand


@app.command(cls=RayCommand)
def front(
    data: Annotated[
        str,
        typer.Option(
            "--data", help="Data set: digits, mnist, svhn, cifar10, or a file FILE.npz.", autocompletion=offer("data")
        ),
    ],
    model: Annotated[
        str, typer.Option("--model", help="Network of the zoo, or an ONNX file.", autocompletion=offer("model"))
    ],
    test_data: TestData = None,
    eps: Annotated[
        str | None,
        typer.Option("--eps", help="Radius to be robust in, in the values of the data. (default: of the data)"),
    ] = None,
    hours: Annotated[float, typer.Option(help="About how long all of it may take.")] = 3.0,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder to write. (default: fronts/DATA-MODEL)")
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(
            help="Only settings whose name is or contains this; may be given again. (`lingraft reproduce front`"
            " --dry-run shows them)"
        ),
    ] = None,
    min_sa: Annotated[float | None, typer.Option("--min-sa", help="Standard accuracy that is needed.")] = None,
    first_epochs: Annotated[int, typer.Option(help="Epochs of training in the first round.")] = 4,
    epochs: Annotated[int, typer.Option(help="Epochs of training at most.")] = 60,
    validation_images: Annotated[int, typer.Option(help="Validation images to verify, the first ones.")] = 50,
    validation_timeout: Annotated[float, typer.Option(help="Seconds to verify a validation image.")] = 2.0,
    images: Annotated[int, typer.Option(help="Test images to verify, the first ones; fewer if time is short.")] = 200,
    timeout: Annotated[float, typer.Option(help="Seconds to verify a test image.")] = 20.0,
    workers: Workers = None,
    ray: RayAddress = None,
    threads: Threads = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Find the method with the most verified accuracy at the accuracy you need; run it again to go on after a stop.

    Trains and grafts in several ways, short trainings first, drops what others beat in both accuracies, and tests what
    is left.
    """
    try:
        found = lingraft.front(
            model,
            data,
            test_data=test_data,
            eps=eps,
            hours=hours,
            out=out,
            row=row or (),
            min_sa=min_sa,
            first_epochs=first_epochs,
            epochs=epochs,
            validation_images=validation_images,
            validation_timeout=validation_timeout,
            images=images,
            timeout=timeout,
            workers=workers,
            ray=ray,
            threads=threads,
            seed=seed,
            device=device,
        )
    except KeyboardInterrupt:
        next_step("the same command goes on with what is not finished")
        raise
    if as_json:
        print_json(
            {
                "folder": str(found.folder),
                "tested": [{**asdict(each), "va": each.va, "interval": each.interval} for each in found.tested],
                "front": [each.name for each in found.front],
                "left_out": found.left_out,
                "advice": found.advice,
                "files": [str(path) for path in found.files],
            }
        )
    else:
        shown = Console(highlight=False)
        table = Table("", "SA", "VA", "95 %", "undecided", "epochs", "")
        for each in sorted(found.tested, key=lambda each: -each.sa):
            low, high = each.interval
            mark = "front" if each in found.front else ""
            table.add_row(
                each.name, f"{each.sa:.2%}", f"{each.va:.2%}", f"{low:.0%} to {high:.0%}",
                f"{each.undecided / each.images:.2%}", str(each.epochs), mark,
            )  # fmt: skip
        shown.print(table)
        for line in [*found.advice, "  ".join(map(str, found.files))]:
            shown.print(line, soft_wrap=True)
    next_step(f"lingraft verify {found.front[-1].run} --images all --check")
