"""`lingraft select`."""

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import lingraft
from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.options import Json, OwnModel, RunFolder, given_network, next_step, print_json
from lingraft.errors import LingraftError
from lingraft.names import short_name

Gamma = Annotated[
    str, typer.Option(help="γ of γ·r_u − r_s: one number, stages such as 2,1.5,1,0, or inf for r_u alone.")
]
Ranks = Annotated[
    str,
    typer.Option(
        help="Graft the ratio of all neurons together (network, the paper's) or of those of each site (site).",
        autocompletion=offer("ranks"),
    ),
]


def parse_gammas(text: str) -> tuple[float, ...]:
    """`2,1.5,1,0`, `1` or `inf`."""
    try:
        gammas = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise LingraftError(f"--gamma {text!r} is not a list of numbers. Write it like 2,1.5,1,0 or inf.") from error
    if any(math.isnan(gamma) or gamma < 0 for gamma in gammas):
        raise LingraftError(f"--gamma {text} must have numbers of 0 or above.")
    return gammas


@app.command()
def select(
    folder: RunFolder = None,
    model: OwnModel = None,
    ratio: Annotated[float, typer.Option(help="Share of the neurons of the network to graft, in all.")] = 0.5,
    gamma: Gamma = "2,1.5,1,0",
    ranks: Ranks = "network",
    scores: Annotated[
        Path | None, typer.Option(help="Scores to use. (default: those that `lingraft score RUN` writes)")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="File to write. (default: RUN/mask.safetensors)")
    ] = None,
    as_json: Json = False,
) -> None:
    """Choose the neurons to graft from scores, and show where they are."""
    given = given_network(folder, model)
    if given.run is None and scores is None:
        raise LingraftError(f"{given.name} is in no run that has scores. Give the file of them: --scores FILE.")
    mask = lingraft.select(
        scores or given.network, ratio, gamma=parse_gammas(gamma), ranks=ranks, run=given.network, out=out
    )
    planned = lingraft.plan(given.network, mask)
    path = given.run.mask_path if given.run is not None and out is None else out
    if as_json:
        print_json({"mask": str(path), **planned.as_dict()})
        return
    Console().print(planned)
    beside = Path("runs") / short_name(given.name) if given.run is None else given.run.path
    data = " --data … --eps …" if given.run is None else ""
    next_step(f"lingraft graft {given.words} --mask {path}{data} -o {beside}-grafted")
