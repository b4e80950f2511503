"""`lingraft graft`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.config import Config
from lingraft.cli.options import (
    Device,
    Json,
    OwnModel,
    RunData,
    RunEps,
    RunFolder,
    Seed,
    TestData,
    Threads,
    ValueRange,
    given_network,
    next_step,
    print_json,
    shown_eps,
)
from lingraft.cli.select import Gamma, Ranks, parse_gammas

Bounds = Annotated[
    str,
    typer.Option(
        help="Bounds that say which neurons are unstable: intervals (fast, wide), crown or alpha-crown (slow).",
        autocompletion=offer("bounds"),
    ),
]
Unstable = Annotated[
    str,
    typer.Option(
        "--instability",
        help="How much a neuron stands in the way of a proof: count (the paper's), harm, harm-per-site,"
        " harm-per-significance or weighted-interval.",
        autocompletion=offer("instability"),
    ),
]


@app.command()
def graft(
    folder: RunFolder = None,
    model: OwnModel = None,
    preset: Annotated[
        str,
        typer.Option(
            help="laptop: 8 epochs at --lr 0.005 --line-lr 0.05, --significance gap-before; paper: 100 epochs at 0.001"
            " and 0.01, gap. Of a network trained with Adam both rates are 0.0005.",
            autocompletion=offer("preset"),
        ),
    ] = "laptop",
    ratio: Annotated[
        float | None, typer.Option(help="Share of the neurons of the network to graft, in all. (default: 0.5)")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="grafting, random, zero, sap, gap, hydra, baseline (nothing grafted), or auto: grafting, with the"
            " ratio and the --instability that prove most while keeping --min-sa.",
            autocompletion=offer("grafting"),
        ),
    ] = "grafting",
    min_sa: Annotated[
        float | None,
        typer.Option("--min-sa", help="With auto, --guided: standard accuracy on validation images to keep."),
    ] = None,
    guided: Annotated[
        int, typer.Option(help="Steps that then graft more, where the verifier is stuck on training images.")
    ] = 0,
    guided_share: Annotated[float, typer.Option(help="With --guided: share of all neurons that a step grafts.")] = 0.01,
    ungraft: Annotated[
        bool, typer.Option("--ungraft", help="In the end, give back lines that no proof needs, if SA and VA allow it.")
    ] = False,
    gamma: Gamma = "2,1.5,1,0",
    gradual: Annotated[
        bool, typer.Option("--gradual", help="Graft over the first half of the epochs, not at once.")
    ] = False,
    rescore: Annotated[bool, typer.Option("--rescore", help="With --gradual: score anew before each step.")] = False,
    regularize: Annotated[
        str | None, typer.Option(help="Regularizers, any of stability,l1,prune (Xiao et al. 2019).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Run folder to write. (default: RUN-METHOD-PERCENT)")
    ] = None,
    mask: Annotated[
        Path | None, typer.Option(help="Graft the neurons of this file, made by `lingraft select`.")
    ] = None,
    significance: Annotated[
        str | None,
        typer.Option(
            help="How much a neuron matters (grafting, zero): gap, gap-before, adversarial-gap, sap, hydra, random."
            " (default: of the preset)",
            autocompletion=offer("significance"),
        ),
    ] = None,
    instability: Unstable = "count",
    ranks: Ranks = "network",
    bounds: Bounds = "crown",
    score_images: Annotated[int, typer.Option(help="Training images, the first ones, for the significance.")] = 1000,
    bound_images: Annotated[
        int,
        typer.Option(help="Images, the first ones, to bound neurons on: training images to choose, test to report."),
    ] = 100,
    slope: Annotated[
        float | None, typer.Option(help="Slope of a grafted neuron at the start. (default: 0.4; smooth: that at 0)")
    ] = None,
    intercept: Annotated[
        float | None, typer.Option(help="Intercept of a grafted neuron at the start. (default: 0; smooth: that at 0)")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of fine-tuning; 0: graft only. (default: of the preset)")
    ] = None,
    line_lr: Annotated[
        float | None, typer.Option(help="Learning rate of slopes and intercepts. (default: of the preset)")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of the weights. (default: of the preset)")] = None,
    finetune_loss: Annotated[
        str | None,
        typer.Option(
            help="Mix interval-certified training into the loss with a weight from 0 to 1, mtl-ibp:0.01, or take the"
            " bound of a box with a share of the ball instead, sabr:0.1. (default: neither, as in the paper)"
        ),
    ] = None,
    freeze_weights: Annotated[bool, typer.Option("--freeze-weights", help="Train slopes and intercepts only.")] = False,
    batch: Annotated[int | None, typer.Option(help="Images a step. (default: as RUN was trained)")] = None,
    eps: RunEps = None,
    clip: ValueRange = "data",
    data: RunData = None,
    test_data: TestData = None,
    images: Annotated[int, typer.Option(help="Test images, the first ones, for the robust accuracy.")] = 1000,
    search_epochs: Annotated[
        int, typer.Option(help="With auto, --guided: epochs of fine-tuning of a candidate or step.")
    ] = 5,
    search_images: Annotated[int, typer.Option(help="With auto, --guided: images to verify, the first ones.")] = 50,
    search_timeout: Annotated[float, typer.Option(help="With auto, --guided: seconds to verify an image.")] = 2.0,
    search_workers: Annotated[
        int | None,
        typer.Option(help="With auto, --guided: processes that verify; 0: this process. (default: one for each core)"),
    ] = None,
    config: Config = None,
    restart: Annotated[bool, typer.Option("--restart", help="Throw away what the folder to write holds.")] = False,
    threads: Threads = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Score, choose, graft, fine-tune and evaluate; run it again to go on after a stop."""
    given = given_network(folder, model)
    try:
        grafted = lingraft.graft_and_tune(
            given.network,
            data,
            test_data=test_data,
            preset=preset,
            ratio=ratio,
            method=method,
            min_sa=min_sa,
            guided=guided,
            guided_share=guided_share,
            ungraft=ungraft,
            gamma=parse_gammas(gamma),
            gradual=gradual,
            rescore=rescore,
            regularize=regularize.split(",") if regularize else (),
            out=out,
            mask=mask,
            significance=significance,
            instability=instability,
            ranks=ranks,
            bounds=bounds,
            score_images=score_images,
            bound_images=bound_images,
            slope=slope,
            intercept=intercept,
            epochs=epochs,
            line_lr=line_lr,
            lr=lr,
            finetune_loss=finetune_loss,
            freeze_weights=freeze_weights,
            batch=batch,
            eps=eps,
            clip=clip,
            images=images,
            search_epochs=search_epochs,
            search_images=search_images,
            search_timeout=search_timeout,
            search_workers=search_workers,
            restart=restart,
            threads=threads,
            seed=seed,
            device=device,
        )
    except KeyboardInterrupt:
        next_step("the same command goes on after the last whole epoch")
        raise
    if grafted.figures is None:
        return
    if as_json:
        print_json({"run": str(grafted.run.path), **grafted.figures})
    else:
        console = Console(highlight=False)
        console.print(grafted.plan)
        described = grafted.run.describe()
        console.print(_table(grafted.figures, described.test_data or described.data))
    next_step(f"lingraft evaluate {grafted.run.path}" + ("" if model is None else f" --model {model}"))


def _table(figures: dict[str, Any], data: str | None) -> Table:
    """SA, RA and UNR before and after grafting, side by side."""
    before, after = figures["before"], figures["after"]
    table = Table("", title=f"{data}, ε = {shown_eps(figures['settings']['eps'])}, test images", title_justify="left")
    for column in ("before", "after", "images"):
        table.add_column(column, justify="right")
    for name, key, images in (
        ("standard accuracy (SA)", "sa", "images_sa"),
        (f"robust accuracy (RA), {after['attack']}", "ra", "images"),
        (f"unstable neurons (UNR), {after['bounds']}", "unstable_ratio", "images_unstable"),
    ):
        table.add_row(name, f"{before[key]:.2%}", f"{after[key]:.2%}", f"{after[images]:,}")
    return table
