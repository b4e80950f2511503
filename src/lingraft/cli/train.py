"""`lingraft train`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

import lingraft
from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.config import Config
from lingraft.cli.following import is_follower
from lingraft.cli.options import Device, Json, Seed, TestData, Threads, ValueRange, next_step, print_json
from lingraft.errors import LingraftError
from lingraft.names import short_name
from lingraft.progress import console

if TYPE_CHECKING:
    from lingraft.training import History


@app.command()
def train(
    data: Annotated[
        str,
        typer.Option(
            "--data", help="Data set: digits, mnist, svhn, cifar10, or a file FILE.npz.", autocompletion=offer("data")
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="Network of the zoo (`lingraft zoo` lists them), or of your own: FILE.py:NAME, the code that makes it,"
            " or an ONNX file.",
            autocompletion=offer("model"),
        ),
    ],
    test_data: TestData = None,
    eps: Annotated[
        str | None,
        typer.Option(
            "--eps",
            help="Radius to be robust in, in the values of the data; 0: standard training. (default: of the data)",
        ),
    ] = None,
    clip: ValueRange = "data",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Run folder to write. (default: runs/DATA-MODEL)")
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="laptop: 30 epochs, one-cycle, weight decay 0.002; paper: 200 epochs, ÷10 at 100 and 150, 0.0005."
            " Certified methods: 20 epochs, one-cycle; 160 epochs, ÷10 at 120 and 140; both with Adam."
            " The options below change single settings.",
            autocompletion=offer("preset"),
        ),
    ] = "laptop",
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.")] = None,
    method: Annotated[
        str,
        typer.Option(
            help="fat (fast adversarial training with GradAlign), pgd, trades; certified: ibp, crown-ibp, mtl-ibp,"
            " sabr, taps, staps.",
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
    gradient_clip: Annotated[
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
    grad_align_share: Annotated[
        float | None, typer.Option(help="Share of each batch that GradAlign looks at. (default: of the preset)")
    ] = None,
    attack_steps: Annotated[
        int | None, typer.Option(help="Steps of the attack in training. (default: pgd, trades: 10; certified: 1)")
    ] = None,
    trades_beta: Annotated[float, typer.Option(help="β of TRADES.")] = 6.0,
    eps_factor: Annotated[
        float, typer.Option(help="Train in balls of so many times the radius; all else stays at --eps.")
    ] = 1.0,
    warm_up: Annotated[int | None, typer.Option(help="Epochs with radius 0. (default: 0; certified: 1)")] = None,
    ramp: Annotated[
        int | None,
        typer.Option(help="Epochs for the radius to grow. (default: 0; certified: until half of all)"),
    ] = None,
    kappa: Annotated[
        str, typer.Option(help="Certified: weight of the clean loss at the start and at the end of the ramp.")
    ] = "0,0",
    alpha: Annotated[float, typer.Option(help="α of MTL-IBP, the weight of the certified term.")] = 0.01,
    small_box: Annotated[
        float, typer.Option(help="SABR, STAPS: width of the box around an attacked image, as a share of the ball's.")
    ] = 0.1,
    attacked_sites: Annotated[
        int, typer.Option(help="TAPS, STAPS: activations, the last ones, that are attacked instead of bounded.")
    ] = 1,
    regularization: Annotated[
        float, typer.Option(help="Certified: λ of the regularizers that fade while the radius grows; 0: none.")
    ] = 0.5,
    validation_images: Annotated[
        int | None, typer.Option(help="Images for the robust accuracy after each epoch. (default: of the preset)")
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(help="Neurons that are lines from the beginning: a file made by `lingraft select`."),
    ] = None,
    config: Config = None,
    restart: Annotated[bool, typer.Option("--restart", help="Throw away what the run folder holds.")] = False,
    threads: Threads = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train a network to be robust; run it again to go on after a stop."""
    run = lingraft.Run(out or Path("runs") / f"{short_name(data)}-{short_name(model)}")
    done_now = 0

    def count(history: "History") -> None:
        nonlocal done_now
        done_now += 1
        console.print(str(history.last), highlight=False, soft_wrap=True)

    try:
        lingraft.train(
            model,
            data,
            test_data=test_data,
            eps=eps,
            clip=clip,
            run=run,
            preset=preset,
            epochs=epochs,
            method=method,
            schedule=schedule,
            milestones=_parse_milestones(milestones),
            lr=lr,
            batch=batch,
            momentum=momentum,
            weight_decay=weight_decay,
            optimizer=optimizer,
            gradient_clip=gradient_clip,
            initialization=initialization,
            grad_align=grad_align,
            grad_align_share=grad_align_share,
            attack_steps=attack_steps,
            trades_beta=trades_beta,
            eps_factor=eps_factor,
            warm_up=warm_up,
            ramp=ramp,
            kappa=_parse_kappa(kappa),
            alpha=alpha,
            small_box=small_box,
            attacked_sites=attacked_sites,
            regularization=regularization,
            validation_images=validation_images,
            mask=mask,
            seed=seed,
            device=device,
            threads=threads,
            restart=restart,
            on_epoch=count,
        )
    except KeyboardInterrupt:
        next_step("the same command goes on after the last whole epoch")
        raise
    if is_follower():
        return
    trained = run.summary().training
    assert trained is not None
    best, total = trained.best, trained.epochs
    assert best is not None
    assert total is not None
    if as_json:
        print_json({"run": str(run.path), "epochs_done_before": total - done_now, "best": best.as_dict()})
    else:
        shown = Console(highlight=False)
        if not done_now:
            shown.print(f"{run.path} is trained already: all {total} epochs are done.", soft_wrap=True)
        shown.print(
            f"kept epoch {best.epoch} of {total}: standard accuracy [bold]{best.sa:.2%}[/],"
            f" robust accuracy [bold]{best.ra:.2%}[/] (PGD-{trained.settings['validation_steps']})"
            + ("" if best.certified is None else f", certified by intervals [bold]{best.certified:.2%}[/]")
            + " on validation images",
            soft_wrap=True,
        )
    own = f" --model {model}" if run.describe().needs_code else ""
    tests = "" if test_data is not None or lingraft.data.spec_of(data).divided else " --data TEST.npz"
    next_step(f"lingraft evaluate {run.path}{own}{tests}")


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
