"""`lingraft export`."""

from pathlib import Path
from typing import Annotated

import typer

import lingraft
from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.options import (
    Images,
    Json,
    OwnModel,
    RunData,
    RunEps,
    RunFolder,
    ValueRange,
    given_network,
    next_step,
    parse_images,
    print_json,
)


@app.command()
def export(
    folder: RunFolder = None,
    network: Annotated[
        Path | None, typer.Argument(metavar="[NET.onnx]", help="Where to write the network.", show_default=False)
    ] = None,
    model: OwnModel = None,
    form: Annotated[
        str,
        typer.Option(
            "--form",
            help="Grafted sites: output, act(x)·keep + …; input, act(x·keep) + …; batchnorm, for Marabou.",
            autocompletion=offer("form"),
        ),
    ] = "output",
    dynamic_batch: Annotated[
        bool, typer.Option("--dynamic-batch", help="Leave the batch size open instead of fixing it at 1.")
    ] = False,
    vnnlib: Annotated[
        Path | None,
        typer.Option(
            "--vnnlib", metavar="DIR", help="Make DIR a VNN-COMP benchmark: network, properties, instances.csv."
        ),
    ] = None,
    images: Images = "100",
    eps: RunEps = None,
    clip: ValueRange = "data",
    data: RunData = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds for each property, written to instances.csv.")
    ] = 60.0,
    as_json: Json = False,
) -> None:
    """Write the model of a run as ONNX, and robustness properties of it as VNN-LIB, for any other verifier."""
    if model is not None and network is None and folder is not None and folder.suffix == ".onnx":
        folder, network = None, folder  # the network is that of --model, and this is where to write it
    given = given_network(folder, model)
    written = lingraft.export(
        given.network,
        network,
        form=form,  # type: ignore[arg-type]  # checked there
        dynamic_batch=dynamic_batch,
        vnnlib=vnnlib,
        images=parse_images(images),
        eps=eps,
        clip=clip,
        data=data,
        timeout=timeout,
    )
    if as_json:
        print_json(written.as_dict())
        return
    for path in written.networks:
        typer.echo(f"{path}: {path.stat().st_size:,} bytes, differs from the model by {written.difference:.1e}")
    if written.properties is not None:
        typer.echo(
            f"{vnnlib}: {written.properties.properties} properties with eps {written.properties.eps:g}"
            f" ({written.properties.misclassified} misclassified images left out)"
        )
        next_step(f"lingraft vnncomp {vnnlib}   (decides all its properties)")
    else:
        next_step(f"lingraft verify {network} --data … --eps …   (or lingraft.load_onnx in Python)")
