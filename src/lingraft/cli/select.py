"""`lingraft select`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.options import Json, RunFolder, next_step, print_json
from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from lingraft.runs import Run

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


def scores_path(run: "Run") -> Path:
    """Where scores of a run's own network belong: in a grafted run, scores.npz are those it was chosen by."""
    return run.scores_path if run.describe().grafted is None else run.grafted_scores_path


@app.command()
def select(
    folder: RunFolder,
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
    from rich.console import Console

    from lingraft.cli.holding import hold
    from lingraft.grafting import Scores, select_ranked
    from lingraft.grafting.mask_file import save_mask
    from lingraft.model.plan import plan
    from lingraft.model.sites import sites
    from lingraft.model.surgery import masks
    from lingraft.runs import Run, load

    run = Run(folder)
    description = run.describe()
    hold(run.path)
    found = Scores.load(scores or scores_path(run))
    model = load(run)
    mask = select_ranked(found, ratio, parse_gammas(gamma), ranks, masks(model))
    planned = plan(sites(model, description.input_shape), mask)
    path = out or run.path / "mask.safetensors"
    save_mask(path, mask)
    run.keep_command()
    if as_json:
        print_json({"mask": str(path), **planned.as_dict()})
        return
    Console().print(planned)
    next_step(f"lingraft graft {run.path} --mask {path} -o {run.path}-grafted")
