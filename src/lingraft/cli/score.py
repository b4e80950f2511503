"""`lingraft score`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.graft import Bounds, Unstable
from lingraft.cli.options import (
    Device,
    Json,
    OwnModel,
    RunData,
    RunEps,
    RunFolder,
    Seed,
    ValueRange,
    given_network,
    next_step,
    print_json,
    shown_eps,
)


@app.command()
def score(
    folder: RunFolder = None,
    model: OwnModel = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="File to write. (default: RUN/scores.npz; if RUN is grafted, scores-grafted.npz)"
        ),
    ] = None,
    significance: Annotated[
        str,
        typer.Option(
            help="How much a neuron matters: gap, gap-before, adversarial-gap, sap, hydra or random.",
            autocompletion=offer("significance"),
        ),
    ] = "gap-before",
    ratio: Annotated[float, typer.Option(help="Share of neurons to be pruned, which hydra learns for.")] = 0.5,
    instability: Unstable = "count",
    bounds: Bounds = "crown",
    score_images: Annotated[int, typer.Option(help="Training images, the first ones, for the significance.")] = 1000,
    bound_images: Annotated[int, typer.Option(help="Training images, the first ones, for the instability.")] = 100,
    split: Annotated[
        str,
        typer.Option(
            help="train: to choose neurons by; test: to report on, kept in RUN/scores-test.npz.",
            autocompletion=offer("split"),
        ),
    ] = "train",
    eps: RunEps = None,
    clip: ValueRange = "data",
    data: RunData = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Score every neuron of a run: how much it stands in the way of a proof, and how much it matters."""
    given = given_network(folder, model)
    scores = lingraft.score(
        given.network,
        data,
        eps=eps,
        clip=clip,
        significance=significance,
        ratio=ratio,
        instability=instability,
        bounds=bounds,
        score_images=score_images,
        bound_images=bound_images,
        split=split,
        seed=seed,
        device=device,
        out=out,
    )
    facts = scores.facts
    rows = [
        {
            "site": name,
            "neurons": values.numel(),
            "mean_instability": float(values.mean()) / facts["bound_images"],
            "mean_instability_rank": float(scores.instability_rank[name].mean()),
            "mean_significance_rank": float(scores.significance_rank[name].mean()),
        }
        for name, values in (scores.instability or {}).items()
    ]
    if as_json:
        path = given.run.scores_path_of(split) if given.run is not None and out is None else out
        print_json({"scores": None if path is None else str(path), "facts": dict(facts), "sites": rows})
        return
    images = "training images" if split == "train" else "test images"
    title = f"{instability} on {facts['bound_images']:,} {images}, ε = {shown_eps(facts['eps'])}, {bounds}"
    table = Table("site", title=title, title_justify="left")
    for column in ("neurons", "mean u", "mean r_u", "mean r_s"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row["site"]),
            f"{row['neurons']:,}",
            f"{row['mean_instability']:.3g}",
            f"{row['mean_instability_rank']:.2f}",
            f"{row['mean_significance_rank']:.2f}",
        )
    Console().print(table)
    if split == "test":
        if given.run is not None:
            next_step(f"lingraft report {given.words}")
    elif given.run is not None:
        next_step(f"lingraft select {given.words} --ratio 0.5" + ("" if out is None else f" --scores {out}"))
    elif out is None:
        next_step("the same with -o scores.npz keeps them")
    else:
        next_step(f"lingraft select {given.words} --scores {out} --ratio 0.5 -o mask.safetensors")
