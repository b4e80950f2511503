"""`lingraft graft`."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.options import (
    Device,
    Json,
    RunEps,
    RunFolder,
    Seed,
    Threads,
    next_step,
    parse_eps,
    print_json,
    use_threads,
)
from lingraft.cli.select import Gamma, Ranks, parse_gammas
from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from lingraft.grafting.candidates import Candidate
    from lingraft.work.search import Search

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
        help="How much a neuron stands in the way of a proof: count (the paper's), harm, harm-per-site or"
        " harm-per-significance.",
        autocompletion=offer("instability"),
    ),
]


@app.command()
def graft(
    folder: RunFolder,
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
        float | None, typer.Option("--min-sa", help="With auto: standard accuracy on validation images to keep.")
    ] = None,
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
        str,
        typer.Option(
            help="How much a neuron matters (grafting, zero): gap, gap-before, adversarial-gap, sap, hydra, random.",
            autocompletion=offer("significance"),
        ),
    ] = "gap",
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
    epochs: Annotated[int, typer.Option(help="Epochs of fine-tuning; 0: graft only.")] = 100,
    line_lr: Annotated[float, typer.Option(help="Learning rate of slopes and intercepts.")] = 0.01,
    lr: Annotated[float, typer.Option(help="Learning rate of the weights.")] = 0.001,
    finetune_loss: Annotated[
        str | None,
        typer.Option(
            help="Mix interval-certified training into the loss with a weight from 0 to 1, e.g. mtl-ibp:0.01."
            " (default: none, as in the paper)"
        ),
    ] = None,
    freeze_weights: Annotated[bool, typer.Option("--freeze-weights", help="Train slopes and intercepts only.")] = False,
    batch: Annotated[int | None, typer.Option(help="Images a step. (default: as RUN was trained)")] = None,
    eps: RunEps = None,
    images: Annotated[int, typer.Option(help="Test images, the first ones, for the robust accuracy.")] = 1000,
    search_epochs: Annotated[int, typer.Option(help="With auto: epochs of fine-tuning of a candidate.")] = 5,
    search_images: Annotated[int, typer.Option(help="With auto: validation images to verify, the first ones.")] = 50,
    search_timeout: Annotated[float, typer.Option(help="With auto: seconds to verify an image.")] = 2.0,
    search_workers: Annotated[
        int | None, typer.Option(help="With auto: processes that verify; 0: this process. (default: one a core)")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Throw away what the folder to write holds.")] = False,
    threads: Threads = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Score, choose, graft, fine-tune and evaluate; run it again to go on after a stop."""
    from rich.console import Console

    from lingraft.cli.holding import hold
    from lingraft.command import until_done
    from lingraft.data import DATASETS
    from lingraft.data import load as load_data
    from lingraft.device import resolve_device
    from lingraft.grafting import FineTuning, GraftingConfig, fine_tuning_like, graft_and_tune
    from lingraft.grafting.mask_file import load_mask
    from lingraft.grafting.outcome import before_and_after, table
    from lingraft.model.plan import plan
    from lingraft.model.sites import sites
    from lingraft.model.surgery import masks
    from lingraft.runs import Run, load
    from lingraft.training.distributed import joined
    from lingraft.work.search import Search, SearchConfig

    parent = Run(folder)
    description = parent.describe()
    data = description.data_set()
    radius = description.radius(None if eps is None else parse_eps(eps))
    config = GraftingConfig(
        radius,
        method="grafting" if method == "auto" else method,
        ratio=0.5 if ratio is None else ratio,
        gammas=parse_gammas(gamma),
        significance=significance,
        instability=instability,
        ranks=ranks,
        bounds=bounds,
        images=score_images,
        bound_images=bound_images,
        slope=slope,
        intercept=intercept,
        gradual=gradual,
        rescore=rescore,
        seed=seed,
    )
    if epochs < 0:
        raise LingraftError(f"--epochs must be 0 or more, not {epochs}.")
    tuning = None
    if epochs:
        trained = parent.summary().training
        training_settings = trained.settings if trained else {}
        changes = {"epochs": epochs, "lr": lr, "seed": seed, **({} if batch is None else {"batch": batch})}
        tuning = FineTuning(
            fine_tuning_like(training_settings, radius, **changes),
            line_lr,
            freeze_weights,
            tuple(regularize.split(",")) if regularize else (),
            certified=_certified_weight(finetune_loss),
        )
    wanted = None
    if method == "auto":
        if min_sa is None or ratio is not None or mask is not None or tuning is None:
            raise LingraftError(
                "--method auto needs --min-sa and epochs; it chooses the neurons, so no --ratio or --mask."
            )
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise LingraftError("--method auto does not run under torchrun. Graft with the --ratio that it chose.")
        wanted = SearchConfig(min_sa, search_epochs, search_images, search_timeout, search_workers)
    elif min_sa is not None:
        raise LingraftError("--min-sa belongs to --method auto.")
    elif ratio is not None and mask is not None:
        raise LingraftError("--mask names the neurons to graft, so no --ratio.")
    use_threads(threads)
    where, follower = until_done(joined(resolve_device(device)))
    model = load(parent, device=where)
    chosen_by: dict[str, Any] = {}
    chosen = None
    if mask is not None:
        chosen = load_mask(mask)
        planned = plan(sites(model, description.input_shape), chosen)
        config = replace(config, ratio=planned.grafted / planned.neurons)
        chosen_by = {"mask": str(mask)}
    percent = f"{100 * (config.ratio if wanted is None else wanted.min_sa):.4g}"
    run = Run(follower or out or parent.path.with_name(f"{parent.path.name}-{method}-{percent}"))
    if run.path.resolve() == parent.path.resolve():
        raise LingraftError(f"{run.path} is the run to graft. Choose another folder with -o.")
    train, validation, test = (load_data(data, split) for split in ("train", "validation", "test"))
    ours = description.model_copy(update={"parent": str(parent.path), "eps": radius, "seed": seed, "grafted": None})
    augment = DATASETS[data].augment
    try:
        if wanted is not None and tuning is not None:
            hold(parent.path)
            search = Search(parent, model, train, validation, config, tuning, wanted, augment=augment, device=where)
            found = _searched(search)
            config = replace(config, ratio=found.ratio, instability=found.instability)
            chosen_by = {"search": {"min_sa": wanted.min_sa, "chosen": found.as_dict()}}
        hold(run.path)
        grafted, history = graft_and_tune(
            model, train, validation, config, tuning, run, ours,
            mask=chosen, augment=augment, device=where, restart=restart,
        )  # fmt: skip
    except KeyboardInterrupt:
        next_step("the same command goes on after the last whole epoch")
        raise
    if follower is not None:
        return
    if history is None or history.resumed < epochs or run.summary().grafting is None:
        if history is not None and tuning is not None:
            settings = {"best": history.best.as_dict(), "epochs": epochs, "settings": tuning.training.as_dict()}
            run.add_to_summary("training", settings)
        measured = before_and_after(model, grafted, test, config, images, where)
        run.add_to_summary("grafting", {"settings": config.as_dict(), **measured, **chosen_by})
    result = run.summary().as_dict()["grafting"]
    if as_json:
        print_json({"run": str(run.path), **result})
    else:
        console = Console(highlight=False)
        console.print(plan(sites(grafted, description.input_shape), masks(grafted)))
        console.print(table(result, data))
    next_step(f"lingraft evaluate {run.path}")


def _searched(search: "Search") -> "Candidate":
    """The best candidate of a search; all of them are shown, drawn and written down even if none is good enough."""
    from lingraft.grafting.candidates import best, require_best
    from lingraft.report.run_figures import write_front

    min_sa = search.wanted.min_sa
    tried = search.candidates(lambda line: typer.echo(line, err=True))
    paths = write_front(search.run, tried, best(tried, min_sa), min_sa)
    typer.echo(f"all candidates: {'  '.join(map(str, paths))}", err=True)
    found = require_best(tried, min_sa)
    typer.echo(f"chosen: {found}", err=True)
    return found


def _certified_weight(text: str | None) -> float:
    """α of --finetune-loss."""
    if text is None:
        return 0.0
    name, _, weight = text.partition(":")
    try:
        if name == "mtl-ibp":
            return float(weight)
    except ValueError:
        pass
    raise LingraftError(f"--finetune-loss {text!r} is not a loss. Write it with its weight, like mtl-ibp:0.01.")
