"""`lingraft export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.options import (
    Images,
    Json,
    RunData,
    RunEps,
    RunFolder,
    next_step,
    parse_eps,
    parse_images,
    print_json,
)
from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from lingraft.data import ImageSet

#: Real images on which an exported network is compared with the model, if its data set is there.
_COMPARED_IMAGES = 8


@app.command()
def export(
    run: RunFolder,
    network: Annotated[
        Path | None, typer.Argument(metavar="[NET.onnx]", help="Where to write the network.", show_default=False)
    ] = None,
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
    data: RunData = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds for each property, written to instances.csv.")
    ] = 60.0,
    as_json: Json = False,
) -> None:
    """Write the model of a run as ONNX, and robustness properties of it as VNN-LIB, for any other verifier."""
    if network is None and vnnlib is None:
        raise LingraftError("nothing to export to. Give a path for the network, NET.onnx, or --vnnlib DIR, or both.")
    import lingraft
    from lingraft.data import load as load_data
    from lingraft.formats.benchmark import NETWORK, write_benchmark
    from lingraft.runs import Run

    description = Run(run).describe()
    model = lingraft.load(run)
    which = parse_images(images)
    radius = 0.0 if vnnlib is None else description.radius(None if eps is None else parse_eps(eps))
    test = _test_images(data or description.data) if vnnlib is None else load_data(description.data_set(data), "test")
    compared = None if test is None else test.pixels(slice(_COMPARED_IMAGES))
    paths = [path for path in (network, vnnlib and vnnlib / NETWORK) if path is not None]
    result: dict[str, Any] = {"networks": [str(path) for path in paths], "form": form}
    for path in paths:
        result["difference"] = lingraft.export_onnx(
            model,
            path,
            input_shape=description.input_shape,
            form=form,  # type: ignore[arg-type]  # checked there
            dynamic_batch=dynamic_batch,
            images=compared,
        )
    result["compared_images"] = 0 if compared is None else len(compared)
    if vnnlib is not None:
        assert test is not None
        result |= write_benchmark(vnnlib, model, test.take(which), which.start or 0, radius, timeout)
    if as_json:
        print_json(result)
        return
    for path in paths:
        typer.echo(f"{path}: {path.stat().st_size:,} bytes, differs from the model by {result['difference']:.1e}")
    if vnnlib is not None:
        typer.echo(
            f"{vnnlib}: {result['properties']} properties with eps {result['eps']:g}"
            f" ({result['misclassified']} misclassified images left out)"
        )
    if vnnlib is not None:
        next_step(f"lingraft vnncomp {vnnlib}   (decides all its properties)")
    else:
        next_step(f"lingraft verify --onnx {paths[0]} --vnnlib PROPERTY   (or lingraft.load_onnx in Python)")


def _test_images(name: str | None) -> "ImageSet | None":
    """The test images of a data set; None if they are not there."""
    from lingraft.data import load

    try:
        return None if name is None else load(name, "test")
    except LingraftError:
        return None
