"""`lingraft demo`."""

from pathlib import Path
from typing import Annotated

import typer

import lingraft
from lingraft.cli import app
from lingraft.cli.options import Device, Json, Seed, next_step, print_json


@app.command()
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for what the demo makes.")] = Path("runs/demo"),
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Show the whole story on small handwritten digits; takes one to two minutes, needs no download."""
    figures = lingraft.demo(out, seed=seed, device=device, quiet=as_json)
    if as_json:
        print_json(figures)
    next_step(
        f"lingraft verify {out / 'grafted-80'} --images 100 --timeout 10",
        "lingraft train --data mnist --model cnn-b-half --eps 0.1 --preset laptop --epochs 3",
    )
