"""`lingraft verify`."""

import json
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.deadline import Deadline, leave, process_began
from lingraft.cli.options import (
    Device,
    Json,
    Memory,
    OwnModel,
    RunData,
    RunEps,
    RunFolder,
    Seed,
    ValueRange,
    Workers,
    gibibytes,
    given_network,
    next_step,
    parse_images,
    print_json,
    shown_eps,
)
from lingraft.cli.ray_option import RayAddress, RayCommand
from lingraft.errors import LingraftError
from lingraft.printable import printable

if TYPE_CHECKING:
    from lingraft.work.certify import Tally
    from lingraft.work.properties import PropertyVerdict
    from lingraft.work.results import Results


@app.command(cls=RayCommand)
def verify(
    folder: RunFolder = None,
    model: OwnModel = None,
    onnx: Annotated[
        Path | None,
        typer.Option("--onnx", metavar="FILE", help="Instead of a run: a network in ONNX, and --data or …"),
    ] = None,
    vnnlib: Annotated[
        Path | None, typer.Option("--vnnlib", metavar="FILE", help="… a property of it in VNN-LIB; may be gz.")
    ] = None,
    images: Annotated[
        str | None, typer.Option(help="Test images: a number (the first ones), a range 0:100, or all. (default: 1000)")
    ] = None,
    eps: RunEps = None,
    clip: ValueRange = "data",
    timeout: Annotated[float, typer.Option(help="Seconds for each image, or for the property.")] = 300.0,
    workers: Workers = None,
    memory: Memory = None,
    double: Annotated[bool, typer.Option("--double", help="Search in float64 too; slower.")] = False,
    data: RunData = None,
    certificates: Annotated[
        Path | None, typer.Option("--certificates", metavar="DIR", help="Write a certificate of each proof to DIR.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check each certificate at once. (a run's go to RUN/certificates)")
    ] = False,
    ray: RayAddress = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Prove, for each test image, that no change within ε alters the label, or find one that does.

    Verdicts are kept in RUN/verdicts.jsonl after each image; run it again to go on after a stop.

    A network that is in no run needs --data and --eps, and its verdicts are not kept; see `lingraft save`.

    With --onnx and --vnnlib it decides that property and prints the answer of VNN-COMP: unsat (exit code 0), sat with
    the counterexample (10), unknown (11) or timeout (12). A property of several networks, f and g, takes --onnx
    "[('f', 'a.onnx'), ('g', 'b.onnx')]".
    """
    # of a process that is the command's own, from its start on
    started = process_began() if sys.stdout is sys.__stdout__ else time.monotonic()
    if onnx is not None and (folder is not None or model is not None) and vnnlib is None:
        raise LingraftError(f"--onnx {onnx} is a network, and another one is given beside it. Give one of them.")
    if vnnlib is not None:
        of_run = {
            "RUN": folder, "--model": model, "--images": images, "--eps": eps, "--data": data, "--workers": workers,
            "--ray": ray,
        }  # fmt: skip
        extra = [name for name, value in of_run.items() if value is not None]
        if onnx is None or extra:
            without = f", without {', '.join(extra)}" if extra else ""
            raise LingraftError(f"give --onnx and --vnnlib together{without}, or a run folder instead of them.")

        def late() -> str:
            about = {"onnx": str(onnx), "vnnlib": str(vnnlib), "answer": "timeout", "reason": "time"}
            return json.dumps(about) if as_json else "timeout"

        # what has been proven is certified after the time
        with nullcontext() if check or certificates is not None else Deadline(started, timeout, late):
            decided = lingraft.verify_property(
                onnx, vnnlib, timeout=timeout, memory=gibibytes(memory), double=double, certificates=certificates,
                check=check, seed=seed, device=device, progress=True, started=started,
            )  # fmt: skip
        if as_json:
            print_json(decided.as_dict())
        else:
            _print_answer(decided, check)
        if decided.answer.word == "timeout":
            next_step(f"the same with --timeout {2 * timeout:g}")
        leave(decided.exit_code)
        raise typer.Exit(decided.exit_code)
    if folder is None and model is None and onnx is None:
        raise LingraftError(
            "nothing to verify. Give a run folder, an ONNX file or --model FILE.py:NAME with --data and --eps, or"
            " --onnx FILE and --vnnlib FILE."
        )
    given = given_network(folder or onnx, model)
    if given.run is None and data is None:
        raise LingraftError(
            f"{given.name} is in no run that names images. Give --data, a data set or FILE.npz, or --vnnlib."
        )
    which = None if images is None else int(images) if images.isdecimal() else parse_images(images)
    found = lingraft.verify(
        given.network, which, data=data, eps=eps, clip=clip, timeout=timeout, workers=workers,
        memory=gibibytes(memory), double=double, certificates=certificates, check=check, ray=ray, seed=seed,
        device=device, progress=True,
    )  # fmt: skip
    if as_json:
        print_json({"run": given.name, **found.figures})
    else:
        _print(given.name, found)
        if found.certificates is not None:
            _print_certified(found.certificates, found.summary.verified, check)
    if found.certificates is not None and found.certificates.rejected:
        raise typer.Exit(1)
    if found.certified is not None and not check:
        next_step(f"lingraft check {found.certified} --model {found.certified / 'model.onnx'}")
    elif found.summary.unknown:
        kept = "" if found.run is None else "   (does only the unknown ones again)"
        next_step(f"the same with --timeout {2 * timeout:g}{kept}")
    elif found.run is None:
        said = (
            f" --data {data}" + ("" if eps is None else f" --eps {eps}") + ("" if clip == "data" else f" --clip {clip}")
        )
        next_step(f"lingraft save {given.words}{said}   (a run, to graft it and for reports)")
    elif found.run.describe().grafted is None:
        next_step(f"lingraft graft {given.words} --ratio 0.5   (fewer unstable neurons, more images verified)")


def _print_answer(decided: "PropertyVerdict", check: bool) -> None:
    answer, tally = decided.answer, decided.certificates
    typer.echo(str(answer))
    because = f" ({answer.reason})" if answer.reason else ""
    typer.echo(f"{answer.word}{because} after {answer.seconds:.2f} s, {answer.domains:,} domains", err=True)
    if tally is not None and (answer.word == "unsat" or decided.proven):
        checked = f", {tally.checked} checked" if check else ""
        parts = "" if answer.word == "unsat" else "; these are parts, the property itself is not proven"
        typer.echo(f"{tally.certificates} certificates of {decided.boxes} boxes{checked}{parts}", err=True)
        for name, reason in {**tally.missing, **tally.rejected}.items():
            typer.echo(printable(f"{name}: {reason}"), err=True)


def _print(name: str, found: "Results") -> None:
    summary, about = found.summary, found.figures
    title = f"{name}: {about['data']}, ε = {shown_eps(about['eps'])}, {about['timeout']:g} s for each image"
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
    if found.certificates is None and summary.proofs_said is not None:
        lines["proofs, from before"] = summary.proofs_said
    lines["VA by time limit"] = ", ".join(f"{limit:g} s {va:.1%}" for limit, va in summary.curve)
    for name, text in lines.items():
        if text:
            console.print(f"{name:<24}{text}")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _print_certified(tally: "Tally", verified: int, check: bool) -> None:
    console = Console(soft_wrap=True, highlight=False)
    checked = f", {tally.checked:,} checked" if check else ""
    console.print(f"{'certificates':<24}{tally.certificates:,} of {verified:,} verified{checked}")
    for reason in sorted(set(tally.missing.values())):
        count = list(tally.missing.values()).count(reason)
        console.print(f"  no certificate for {count}: {printable(reason)}", markup=False)
    for name, reason in tally.rejected.items():
        console.print("[bold red]  rejected[/]", end=" ")
        console.print(printable(f"{name}: {reason}"), markup=False)
