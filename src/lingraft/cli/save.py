"""`lingraft save`."""

from pathlib import Path
from typing import Annotated

import typer

import lingraft
from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.options import Json, OwnModel, ValueRange, next_step, print_json
from lingraft.errors import LingraftError
from lingraft.names import short_name


@app.command()
def save(
    network: Annotated[
        Path | None, typer.Argument(metavar="[NET.onnx]", help="An ONNX file.", show_default=False)
    ] = None,
    model: OwnModel = None,
    data: Annotated[
        str | None,
        typer.Option("--data", help="Data set or FILE.npz to use where none is said.", autocompletion=offer("data")),
    ] = None,
    eps: Annotated[str | None, typer.Option("--eps", help="Radius to use where none is said, e.g. 2/255.")] = None,
    clip: ValueRange = "data",
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Run folder to write. (default: runs/NAME)"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Keep a trained network of your own in a run folder, which all other commands take."""
    if (network is None) == (model is None):
        raise LingraftError("give one network: an ONNX file, or --model FILE.py:NAME, the code that makes it.")
    place = str(model or network)
    run = lingraft.save(place, out or Path("runs") / short_name(place), data=data, eps=eps, clip=clip)
    if as_json:
        print_json({"run": str(run.path)})
        return
    typer.echo(f"{run.path}: {place}, with its weights as they are now")
    own = f" --model {model}" if run.describe().needs_code else ""
    rest = ("" if data else " --data …") + ("" if eps else " --eps …")
    next_step(f"lingraft verify {run.path}{own}{rest}")
