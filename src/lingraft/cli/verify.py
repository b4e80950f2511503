"""`lingraft verify`."""

import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from lingraft.cli import app
from lingraft.cli.options import (
    Device,
    Json,
    Memory,
    RunData,
    RunEps,
    Seed,
    Workers,
    next_step,
    parse_eps,
    parse_images,
    print_json,
)
from lingraft.cli.ray_option import RayAddress, RayCommand
from lingraft.errors import LingraftError
from lingraft.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from lingraft.checker.format import Certificate
    from lingraft.runs import Run
    from lingraft.runs.summary import Summary
    from lingraft.solver.request import Limits, Request
    from lingraft.solver.verifier import Result
    from lingraft.work.certify import Tally as Certificates
    from lingraft.work.vnncomp.instance import Instance


@app.command(cls=RayCommand)
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
    eps: RunEps = None,
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
        of_run = {"RUN": folder, "--images": images, "--eps": eps, "--data": data, "--workers": workers, "--ray": ray}
        given = [name for name, value in of_run.items() if value is not None]
        if onnx is None or vnnlib is None or given:
            extra = f", without {', '.join(given)}" if given else ""
            raise LingraftError(f"give --onnx and --vnnlib together{extra}, or a run folder instead of them.")
        limits = _limits(timeout, memory, double, seed, certificates is not None or check)
        _verify_instance(onnx, vnnlib, limits, device, started, certificates, check, as_json)
    if folder is None:
        raise LingraftError("nothing to verify. Give a run folder, or --onnx FILE and --vnnlib FILE.")
    from lingraft.cli.holding import hold
    from lingraft.data import load as load_data
    from lingraft.device import resolve_device
    from lingraft.pool.images import verify_each
    from lingraft.pool.place import Place
    from lingraft.progress import progress
    from lingraft.runs import Run, load
    from lingraft.runs.summary import summarize
    from lingraft.runs.verdicts import Verdicts
    from lingraft.solver.request import Request
    from lingraft.work.verify import Tally

    run = Run(folder)
    description = run.describe()
    radius = description.radius(None if eps is None else parse_eps(eps))
    data = description.data_set(data)
    certificates = run.path / "certificates" if check and certificates is None else certificates
    limits = _limits(timeout, memory, double, seed, certificates is not None)
    place = Place(workers, ray)
    hold(run.path)  # before the weights are read: verdicts name them by the file
    model = load(run, device=resolve_device(device))
    test = load_data(data, "test")
    which = range(len(test))[parse_images("1000" if images is None else images)]
    if not which or (images is not None and images.isdecimal() and int(images) > len(test)):
        raise LingraftError(f"--images {images} asks for images that {data} does not have: it has {len(test):,}.")
    chosen = test.take(slice(which.start, which.stop))
    description.check_fits(chosen, "test")
    request = Request(model, chosen.pixels(), chosen.labels, eps=radius)
    verdicts = Verdicts(run, data, request, limits, which.start)
    results = verdicts.known()
    certified = certificates and _Certified(certificates, check, model, request, data, which.start)
    if certified:
        results = {i: result for i, result in results.items() if certified.knows(result)}
    tally = Tally(len(chosen))
    with progress("verifying", len(chosen)) as advance:
        for result in results.values():
            tally.add(result)
        advance(len(results), str(tally))
        left = [i for i in range(len(chosen)) if i not in results]
        for result in verify_each(request, limits, place, left, which):
            verdicts.keep(result)
            if certified:
                certified.add(result)
            results[result.index - which.start] = result
            tally.add(result)
            advance(1, str(tally))
    summary = summarize((results[i] for i in range(len(chosen))), timeout)
    about = {"data": data, "eps": radius, "first": which.start, "timeout": timeout, "double": double, "seed": seed}
    name = f"{data} eps={radius:.6g} images={which.start}:{which.stop} timeout={timeout:g}"
    figures = {**about, **summary.as_dict(), **({"certificates": certified.tally.as_dict()} if certified else {})}
    run.add_to_summary("verification", figures, name)
    if as_json:
        print_json({"run": str(run.path), **figures})
    else:
        _print(run, about, summary)
        if certified:
            _print_certified(certified.tally, summary.verified, check)
    if certified and certified.tally.rejected:
        raise typer.Exit(1)
    if certified and not check:
        next_step(f"lingraft check {certificates} --model {certified.onnx}")
    elif summary.unknown:
        next_step(f"lingraft verify {run.path} --timeout {2 * timeout:g}   (does only the unknown ones again)")
    elif description.grafted is None:
        next_step(f"lingraft graft {run.path} --ratio 0.5   (fewer unstable neurons, more images verified)")


class _Certified:
    """Certificates of the images of a run, about its model as exported to the same folder."""

    def __init__(self, folder: Path, check: bool, model: "nn.Module", request: "Request", data: str, first: int):
        from lingraft.formats.onnx_export import export_onnx
        from lingraft.work.certify import Certifier

        self.request, self.data, self.first, self.onnx = request, data, first, folder / "model.onnx"
        export_onnx(model, self.onnx, input_shape=request.images.shape[1:], images=request.images[:8])
        self.certifier = Certifier(self.onnx, folder, check)
        self.tally = self.certifier.tally

    def _claim(self, result: "Result") -> tuple[str, "Certificate"]:
        from lingraft.formats.certificate_writer import claim_of_image

        about = {"data": self.data, "split": "test", "index": result.index}
        claim = claim_of_image(self.request, result.index - self.first, about)
        return f"{self.data}-{result.index}-eps{result.eps:.6g}", claim

    def knows(self, result: "Result") -> bool:
        """Whether an earlier verdict needs no certificate, or has one in the folder."""
        return result.verdict != "verified" or self.certifier.known(*self._claim(result))

    def add(self, result: "Result") -> None:
        """Write, and check, the certificate of a verified image; its proof is then given up."""
        if result.verdict == "verified":
            self.certifier.add(*self._claim(result), result, self.request.network)
            result.proof = None


def _print_certified(tally: "Certificates", verified: int, check: bool) -> None:
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    checked = f", {tally.checked:,} checked" if check else ""
    console.print(f"{'certificates':<24}{tally.certificates:,} of {verified:,} verified{checked}")
    for reason in sorted(set(tally.missing.values())):
        count = list(tally.missing.values()).count(reason)
        console.print(f"  no certificate for {count}: {printable(reason)}", markup=False)
    for name, reason in tally.rejected.items():
        console.print("[bold red]  rejected[/]", end=" ")
        console.print(printable(f"{name}: {reason}"), markup=False)


def _limits(timeout: float, memory: float | None, double: bool, seed: int, prove: bool) -> "Limits":
    from lingraft.solver.budget import GIB
    from lingraft.solver.request import Limits

    return Limits(timeout, None if memory is None else memory * GIB, double, seed, prove)


def _verify_instance(
    onnx: Path,
    vnnlib: Path,
    limits: "Limits",
    device: str,
    started: float,
    certificates: Path | None,
    check: bool,
    as_json: bool,
) -> NoReturn:
    """Print the answer on one property and end with its exit code; reading the files counts towards the time.

    Certificates, one for each box that was proven, are written when the answer is known; one that is rejected makes the
    exit code 1. Those of a property with several boxes are named as the parts that they are.
    """
    from lingraft.device import resolve_device
    from lingraft.formats.answer import EXIT_CODES
    from lingraft.formats.onnx_network import OnnxNetwork
    from lingraft.progress import progress
    from lingraft.work.vnncomp.instance import Instance

    instance = Instance.read(OnnxNetwork(onnx, resolve_device(device)), vnnlib)
    digest = _hash(vnnlib) if limits.prove else ""
    with progress("verifying", len(instance.property.boxes)) as advance:
        proofs: list[Any] = []
        answer = instance.answer(limits, started, advance, lambda *proof: proofs.append(proof))
    tally = _certify(onnx, vnnlib, digest, instance, proofs, certificates, check) if limits.prove else None
    if as_json:
        more = {} if tally is None else {"certificates": tally.as_dict()}
        print_json({"onnx": str(onnx), "vnnlib": str(vnnlib), **answer.as_dict(), **more})
    else:
        typer.echo(str(answer))
        because = f" ({answer.reason})" if answer.reason else ""
        typer.echo(f"{answer.word}{because} after {answer.seconds:.2f} s, {answer.domains:,} domains", err=True)
        if tally is not None and (answer.word == "unsat" or proofs):
            checked = f", {tally.checked} checked" if check else ""
            parts = "" if answer.word == "unsat" else "; these are parts, the property itself is not proven"
            count = len(instance.property.boxes)
            typer.echo(f"{tally.certificates} certificates of {count} boxes{checked}{parts}", err=True)
            for name, reason in {**tally.missing, **tally.rejected}.items():
                typer.echo(printable(f"{name}: {reason}"), err=True)
    if tally is not None and tally.rejected:
        raise typer.Exit(1)
    if answer.word == "timeout":
        next_step(f"the same with --timeout {2 * limits.timeout:g}")
    raise typer.Exit(EXIT_CODES[answer.word])


def _hash(vnnlib: Path) -> str:
    """SHA-256 of a property's file, by which its certificates name it."""
    if not vnnlib.is_file():
        raise LingraftError(f"certificates name the property by its file, and {vnnlib} is none. Save it to a file.")
    return sha256(vnnlib.read_bytes()).hexdigest()


def _certify(
    onnx: Path,
    vnnlib: Path,
    digest: str,
    instance: "Instance",
    proofs: list[Any],
    folder: Path | None,
    check: bool,
) -> "Certificates":
    """Certificates of the boxes that were proven."""
    from lingraft.checker.format import Certificate, Part
    from lingraft.work.certify import Certifier
    from lingraft.work.vnncomp.instance import inequalities

    certifier = Certifier(onnx, folder, check)
    boxes = instance.property.boxes
    numbers = {id(box): number for number, box in enumerate(boxes, 1)}
    name = vnnlib.name.removesuffix(".gz").removesuffix(".vnnlib")
    for box, result, network in proofs:
        rows, shifts, longest = inequalities(box.unsafe)
        claim = Certificate("", constraints=(rows, shifts), group=longest, about={"property": vnnlib.name})
        claim.part = Part(digest, numbers[id(box)], len(boxes))
        claim.lower, claim.upper = (side.reshape(instance.network.input_shape) for side in (box.lower, box.upper))
        part = f"-box{claim.part.box}of{len(boxes)}" if len(boxes) > 1 else ""
        certifier.add(f"{name}{part}", claim, result, network)
    return certifier.tally


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
