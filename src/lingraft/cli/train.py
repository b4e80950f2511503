"""`lingraft train`."""

from pathlib import Path
from typing import Annotated

import typer

from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.options import Device, Json, Seed, Threads, next_step, parse_eps, print_json, use_threads
from lingraft.errors import LingraftError


@app.command()
def train(
    data: Annotated[
        str, typer.Option("--data", help="Data set: digits, mnist, svhn or cifar10.", autocompletion=offer("data"))
    ],
    model: Annotated[
        str,
        typer.Option("--model", help="Network of the zoo; `lingraft zoo` lists them.", autocompletion=offer("model")),
    ],
    eps: Annotated[
        str | None,
        typer.Option(
            "--eps",
            help="Radius to be robust in, in pixels of [0, 1]; 0: standard training. (default: the paper's)",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Run folder to write. (default: runs/DATA-MODEL)")
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="laptop: 15 epochs, one-cycle; paper: 200 epochs, learning rate ÷10 at 100 and 150."
            " Certified methods: 20 epochs, one-cycle; 160 epochs, ÷10 at 120 and 140; both with Adam."
            " The options below change single settings.",
            autocompletion=offer("preset"),
        ),
    ] = "laptop",
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.")] = None,
    method: Annotated[
        str,
        typer.Option(
            help="fat (fast adversarial training with GradAlign), pgd, trades; certified: ibp, crown-ibp, mtl-ibp.",
            autocompletion=offer("training"),
        ),
    ] = "fat",
    schedule: Annotated[
        str | None, typer.Option(help="Learning rate: step, one-cycle or cosine.", autocompletion=offer("schedule"))
    ] = None,
    milestones: Annotated[
        str | None,
        typer.Option(
            help="Epochs at which `step` divides by 10, e.g. 100,150. (default: 1/2 and 3/4; certified: 3/4 and 7/8)"
        ),
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Highest learning rate.")] = None,
    batch: Annotated[int, typer.Option(help="Images a step.")] = 128,
    momentum: Annotated[float, typer.Option(help="Momentum of SGD.")] = 0.9,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay. (default: 5e-4; certified: 0)")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd or adam. (default: sgd; certified: adam)")] = None,
    clip: Annotated[
        float | None, typer.Option(help="Shorten longer gradients to this length. (default: no; certified: 10)")
    ] = None,
    initialization: Annotated[
        str | None,
        typer.Option(
            help="Weights to start from: he, torch (torch's default) or intervals. (default: he; certified: intervals)",
            autocompletion=offer("initialization"),
        ),
    ] = None,
    grad_align: Annotated[float, typer.Option(help="λ of GradAlign (fat); 0 switches it off.")] = 0.2,
    attack_steps: Annotated[
        int | None, typer.Option(help="Steps of the attack in training. (default: pgd, trades: 10; mtl-ibp: 1)")
    ] = None,
    trades_beta: Annotated[float, typer.Option(help="β of TRADES.")] = 6.0,
    warm_up: Annotated[int | None, typer.Option(help="Certified: epochs with radius 0. (default: 1)")] = None,
    ramp: Annotated[
        int | None,
        typer.Option(help="Certified: epochs for the radius to grow. (default: until half of all)"),
    ] = None,
    kappa: Annotated[
        str, typer.Option(help="Certified: weight of the clean loss at the start and at the end of the ramp.")
    ] = "0,0",
    alpha: Annotated[float, typer.Option(help="α of MTL-IBP, the weight of the certified term.")] = 0.01,
    regularization: Annotated[
        float, typer.Option(help="Certified: λ of the regularizers that fade while the radius grows; 0: none.")
    ] = 0.5,
    validation_images: Annotated[
        int | None, typer.Option(help="Images for the robust accuracy after each epoch. (default: of the preset)")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Throw away what the run folder holds.")] = False,
    threads: Threads = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train a network of the zoo to be robust; run it again to go on after a stop."""
    import torch
    from rich.console import Console

    from lingraft.cli.holding import hold
    from lingraft.command import until_done
    from lingraft.data import DATASETS, load
    from lingraft.device import resolve_device
    from lingraft.model import zoo
    from lingraft.names import lookup
    from lingraft.report.run_figures import plot_history
    from lingraft.runs import ModelDescription, Run
    from lingraft.training import TrainingConfig, draw, preset_settings
    from lingraft.training import train as train_model
    from lingraft.training.distributed import joined

    spec = lookup("data set", data, DATASETS)
    lookup("model", model, zoo.MODELS)
    chosen = {
        "epochs": epochs,
        "schedule": schedule,
        "lr": lr,
        "milestones": _parse_milestones(milestones),
        "attack_steps": attack_steps,
        "weight_decay": weight_decay,
        "optimizer": optimizer,
        "clip": clip,
        "initialization": initialization,
        "validation_images": validation_images,
    }
    config = TrainingConfig(
        eps=spec.eps if eps is None else parse_eps(eps),
        method=method,
        batch=batch,
        momentum=momentum,
        grad_align=grad_align,
        trades_beta=trades_beta,
        warm_up=warm_up,
        ramp=ramp,
        kappa=_parse_kappa(kappa),
        alpha=alpha,
        regularization=regularization,
        seed=seed,
        **{**preset_settings(preset, method), **{name: value for name, value in chosen.items() if value is not None}},
    )
    where, follower = until_done(joined(resolve_device(device)))
    use_threads(threads)
    run = Run(follower or out or Path("runs") / f"{data}-{model}")
    torch.manual_seed(seed)
    network = zoo.build(model, spec.input_shape, spec.classes, spec.mean, spec.std)
    draw(network, config.initialization or ("intervals" if config.certified and config.eps > 0 else "he"))
    description = ModelDescription(
        architecture=model,
        input_shape=spec.input_shape,
        classes=spec.classes,
        mean=list(spec.mean),
        std=list(spec.std),
        data=data,
        eps=config.eps,
        seed=seed,
    )
    images, validation = load(data, "train"), load(data, "validation")
    hold(run.path)
    try:
        history = train_model(
            network, images, validation, config, run, description, augment=spec.augment, device=where, restart=restart
        )
    except KeyboardInterrupt:
        next_step("the same command goes on after the last whole epoch")
        raise
    if follower is not None:
        return
    best = history.best
    if history.resumed < config.epochs or run.summary().training is None:
        plot_history(run, history, f"{zoo.MODELS[model].title} on {spec.title}, ε = {config.eps:.4g}")
        figures = {"best": best.as_dict(), "epochs": config.epochs, "settings": config.as_dict()}
        run.add_to_summary("training", figures)
    if as_json:
        print_json({"run": str(run.path), "epochs_done_before": history.resumed, "best": best.as_dict()})
    else:
        console = Console(highlight=False)
        if history.resumed == config.epochs:
            console.print(f"{run.path} is trained already: all {config.epochs} epochs are done.", soft_wrap=True)
        console.print(
            f"kept epoch {best.epoch} of {config.epochs}: standard accuracy [bold]{best.sa:.2%}[/],"
            f" robust accuracy [bold]{best.ra:.2%}[/] (PGD-{config.validation_steps})"
            + ("" if best.certified is None else f", certified by intervals [bold]{best.certified:.2%}[/]")
            + " on validation images",
            soft_wrap=True,
        )
    next_step(f"lingraft evaluate {run.path}")


def _parse_milestones(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise LingraftError(f"--milestones {text!r} are not epochs. Write them like 100,150.") from error


def _parse_kappa(text: str) -> tuple[float, float]:
    try:
        start, end = (float(part) for part in text.split(","))
    except ValueError as error:
        raise LingraftError(f"--kappa {text!r} is not two weights. Write it like 1,0.5.") from error
    return start, end
