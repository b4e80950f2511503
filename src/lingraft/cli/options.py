"""Options that several commands share, and how they print."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import lingraft
from lingraft.cli.completion import offer
from lingraft.errors import LingraftError
from lingraft.names import parse_images as parse_images

if TYPE_CHECKING:
    from lingraft.runs import Run


def shown_eps(eps: float | str) -> str:
    """ε in a title; a tensor has a name."""
    return eps if isinstance(eps, str) else f"{eps:.4g}"


def gibibytes(count: float | None) -> float | None:
    """In bytes."""
    return None if count is None else count * 1024**3


RunFolder = Annotated[
    Path | None,
    typer.Argument(metavar="[RUN]", help="A run folder made by lingraft, or an ONNX file.", show_default=False),
]
OwnModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="FILE.py:NAME",
        help="A network of your own: the code that makes it. With RUN: the code of the network that it holds.",
    ),
]
RunEps = Annotated[
    str | None,
    typer.Option(
        "--eps", help="Radius of the ball in the values of the data, e.g. 0.1 or 2/255. (default: that of the run)"
    ),
]
ValueRange = Annotated[
    str,
    typer.Option(
        "--clip",
        help="Range of the values: LOW,HIGH, or none for no limits; data: what the data say, else the run, else 0,1.",
    ),
]
RunData = Annotated[
    str | None,
    typer.Option("--data", help="Data set, or FILE.npz. (default: that of the run)", autocompletion=offer("data")),
]
TestData = Annotated[
    str | None,
    typer.Option("--test-data", help="Data set or FILE.npz with the test images. (default: those of --data)"),
]
Images = Annotated[str, typer.Option("--images", help="Test images: a number (the first ones), a range 0:100, or all.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds for each image.")]
Workers = Annotated[
    int | None,
    typer.Option("--workers", help="Processes, one thread each; 0: this process. (default: one for each core)"),
]
Memory = Annotated[
    float | None,
    typer.Option("--memory", help="GiB of memory for all processes on a machine. (default: 70 % of what is free)"),
]
Threads = Annotated[int | None, typer.Option("--threads", help="CPU threads. (default: all cores)")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random; the same seed gives the same result.")]
Device = Annotated[
    str,
    typer.Option(
        "--device", help="cpu, cuda, cuda:1 … or auto (cuda where there is one).", autocompletion=offer("device")
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON on standard output.")]


@dataclass(frozen=True)
class Given:
    """The network that a command is given: its name, the words that named it, and what functions of lingraft take."""

    name: str
    words: str
    network: Any
    #: the run that it is in; None: it is an ONNX file, or made by code, and nothing is kept
    run: "Run | None"


def given_network(folder: Path | None, model: str | None) -> Given:
    """What RUN and --model name."""
    if folder is None and model is None:
        raise LingraftError("there is no network. Give a run folder, an ONNX file, or --model FILE.py:NAME.")
    if folder is None:
        return Given(str(model), f"--model {model}", model, None)
    if folder.name.endswith((".onnx", ".onnx.gz")):
        if model is not None:
            raise LingraftError(f"{folder} and --model {model} are two networks. Give one of them.")
        return Given(str(folder), str(folder), folder, None)
    run = lingraft.Run(folder, model)
    return Given(str(folder), str(folder) if model is None else f"{folder} --model {model}", run, run)


def print_json(content: Any) -> None:
    """Print `content` as JSON, alone on standard output."""
    typer.echo(json.dumps(content, indent=2))


def next_step(*lines: str) -> None:
    """Say, on standard error, what the user can do next."""
    for line in lines:
        typer.secho(f"next: {line}", fg="cyan", err=True)
