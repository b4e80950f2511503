"""`lingraft verify`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from lingraft.cli import app
from lingraft.cli.options import Device, Json, Seed, next_step, parse_eps, parse_images, print_json
from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingraft.runs import Run
    from lingraft.verification.request import Limits
    from lingraft.verification.summary import Summary


@app.command()
def verify(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="A run folder made by lingraft.", show_default=False)
    ] = None,
    onnx: Annotated[
        Path | None, typer.Option("--onnx", metavar="FILE", help="Instead of a run: a network in ONNX, …")
    ] = None,
    vnnlib: Annotated[
        Path | None, typer.Option("--vnnlib", metavar="FILE", help="… and a property of it in VNN-LIB; may be gz.")
    ] = None,
    images: Annotated[
        str | None, typer.Option(help="Test images: a number (the first ones), a range 0:100, or all. (default: 1000)")
    ] = None,
    eps: Annotated[str | None, typer.Option("--eps", help="Radius of the ball. (default: that of the run)")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for each image, or for the property.")] = 300.0,
    workers: Annotated[
        int | None, typer.Option(help="Processes, one thread each; 0: this process. (default: one a core)")
    ] = None,
    memory: Annotated[float | None, typer.Option(help="GiB of memory in all. (default: 70 % of what is free)")] = None,
    double: Annotated[bool, typer.Option("--double", help="Search in float64 too; slower.")] = False,
    data: Annotated[str | None, typer.Option("--data", help="Data set. (default: that of the run)")] = None,
    seed: Seed = 0,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Prove, for each test image, that no change within ε alters the label, or find one that does.

    Verdicts are kept in RUN/verdicts.jsonl after each image; run it again to go on after a stop.

    With --onnx and --vnnlib it decides that property and prints the answer of VNN-COMP: unsat (exit code 0), sat with
    the counterexample (10), unknown (11) or timeout (12).
    """
    started = time.monotonic()
    if onnx is not None or vnnlib is not None:
        of_run = {"RUN": folder, "--images": images, "--eps": eps, "--data": data, "--workers": workers}
        given = [name for name, value in of_run.items() if value is not None]
        if onnx is None or vnnlib is None or given:
            extra = f", without {', '.join(given)}" if given else ""
            raise LingraftError(f"give --onnx and --vnnlib together{extra}, or a run folder instead of them.")
        _verify_instance(onnx, vnnlib, _limits(timeout, memory, 0, double, seed), device, started, as_json)
    if folder is None:
        raise LingraftError("nothing to verify. Give a run folder, or --onnx FILE and --vnnlib FILE.")
    from lingraft.data import load as load_data
    from lingraft.device import resolve_device
    from lingraft.progress import progress
    from lingraft.runs import Run, load
    from lingraft.verification.request import Request
    from lingraft.verification.summary import summarize
    from lingraft.verification.verdicts import Verdicts
    from lingraft.verification.verify import Tally, verify_each

    run = Run(folder)
    description = run.describe()
    radius = description.radius(None if eps is None else parse_eps(eps))
    data = description.data_set(data)
    limits = _limits(timeout, memory, workers, double, seed)
    model = load(run, device=resolve_device(device))
    test = load_data(data, "test")
    which = range(len(test))[parse_count(images)]
    if not which or (images is not None and images.isdecimal() and int(images) > len(test)):
        raise LingraftError(f"--images {images} asks for images that {data} does not have: it has {len(test):,}.")
    chosen = test.take(slice(which.start, which.stop))
    description.check_fits(chosen, "test")
    request = Request(model, chosen.pixels(), chosen.labels, eps=radius)
    verdicts = Verdicts(run, data, request, limits, which.start)
    results = verdicts.known()
    tally = Tally(len(chosen))
    with progress("verifying", len(chosen)) as advance:
        for result in results.values():
            tally.add(result)
        advance(len(results), str(tally))
        left = [i for i in range(len(chosen)) if i not in results]
        for result in verify_each(request, limits, left, which.start):
            verdicts.keep(result)
            results[result.index - which.start] = result
            tally.add(result)
            advance(1, str(tally))
    summary = summarize((results[i] for i in range(len(chosen))), timeout)
    about = {"data": data, "eps": radius, "first": which.start, "timeout": timeout, "double": double, "seed": seed}
    name = f"{data} eps={radius:.6g} images={which.start}:{which.stop} timeout={timeout:g}"
    figures = {**about, **summary.as_dict()}
    run.add_to_summary("verification", {**run.summary().get("verification", {}), name: figures})
    if as_json:
        print_json({"run": str(run.path), **figures})
    else:
        _print(run, about, summary)
    if summary.unknown:
        next_step(f"lingraft verify {run.path} --timeout {2 * timeout:g}   (does only the unknown ones again)")
    elif description.grafted is None:
        next_step(f"lingraft graft {run.path} --ratio 0.5   (fewer unstable neurons, more images verified)")


def _limits(timeout: float, memory: float | None, workers: int | None, double: bool, seed: int) -> "Limits":
    from lingraft.verification.budget import GIB
    from lingraft.verification.request import Limits

    return Limits(timeout, None if memory is None else memory * GIB, workers, double, seed)


def _verify_instance(
    onnx: Path, vnnlib: Path, limits: "Limits", device: str, started: float, as_json: bool
) -> NoReturn:
    """Print the answer on one property and end with its exit code; reading the files counts towards the time."""
    from lingraft.device import resolve_device
    from lingraft.interop.answer import EXIT_CODES
    from lingraft.interop.instance import Instance
    from lingraft.interop.onnx_network import OnnxNetwork
    from lingraft.progress import progress

    instance = Instance.read(OnnxNetwork(onnx, resolve_device(device)), vnnlib)
    with progress("verifying", len(instance.property.boxes)) as advance:
        answer = instance.answer(limits, started, advance)
    if as_json:
        print_json({"onnx": str(onnx), "vnnlib": str(vnnlib), **answer.as_dict()})
    else:
        typer.echo(str(answer))
        because = f" ({answer.reason})" if answer.reason else ""
        typer.echo(f"{answer.word}{because} after {answer.seconds:.2f} s, {answer.domains:,} domains", err=True)
    if answer.word == "timeout":
        next_step(f"the same with --timeout {2 * limits.timeout:g}")
    raise typer.Exit(EXIT_CODES[answer.word])


def parse_count(text: str | None) -> slice:
    """Which test images: a number means the first so many, a range is as in `parse_images`."""
    if text is None:
        return slice(1000)
    if text == "all":
        return slice(None)
    return slice(int(text)) if text.isdecimal() else parse_images(text)


def _print(run: "Run", about: dict[str, Any], summary: "Summary") -> None:
    from rich.console import Console
    from rich.table import Table

    title = f"{run.path}: {about['data']}, ε = {about['eps']:.4g}, {about['timeout']:g} s an image"
    table = Table("", "images", "share", title=title, title_justify="left")
    table.columns[1].justify = table.columns[2].justify = "right"
    for name, count, share in [
        ("verified (VA)", summary.verified, summary.va),
        ("falsified", summary.falsified, summary.falsified_share),
        ("unknown", summary.unknown, summary.unknown_share),
        ("misclassified", summary.misclassified, summary.misclassified_share),
    ]:
        table.add_row(name, f"{count:,}", f"{share:.2%}")
    console = Console(soft_wrap=True, highlight=False)
    console.print(table)
    lines = {"decided by": _counts(summary.stages), "unknown because of": _counts(summary.unknown_reasons)}
    if summary.unr is not None:
        lines["unstable neurons (UNR)"] = f"{summary.unr:.2%} (mean of {summary.unr_images:,} images)"
    if summary.time is not None:
        what = f"{summary.time_images:,} images neither misclassified nor attacked"
        lines["time"] = f"{summary.time:.2f} s (mean of {what})"
    lines["VA by time limit"] = ", ".join(f"{limit:g} s {va:.1%}" for limit, va in summary.curve)
    for name, text in lines.items():
        if text:
            console.print(f"{name:<24}{text}")


def _counts(counts: "Mapping[str, int]") -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
