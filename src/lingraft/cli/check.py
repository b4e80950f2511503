"""`lingraft check`."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lingraft.cli import app
from lingraft.cli.options import Json, print_json
from lingraft.errors import LingraftError
from lingraft.printable import printable

if TYPE_CHECKING:
    from lingraft.checker.check import Report
    from lingraft.checker.coverage import Coverage
    from lingraft.checker.format import Certificate
    from lingraft.checker.network import Network

#: How many names of files that were not read are shown, and of what a certificate says about itself.
SHOWN = 8

#: Bytes of a property's file at most.
MAX_PROPERTY = 1 << 30


@app.command()
def check(
    certificates: Annotated[
        list[Path], typer.Argument(metavar="CERT…", help="Certificates (*.cert), or folders with certificates.")
    ],
    model: Annotated[Path, typer.Option("--model", metavar="NET.onnx", help="The network that they are about.")],
    vnnlib: Annotated[
        Path | None,
        typer.Option("--vnnlib", metavar="FILE", help="Compare them with all boxes of this property."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check certificates of robustness without trusting the verifier that wrote them, and say what they prove.

    All bounds are derived again from the network and the certificate, with rounding errors accounted for. Where
    onnxruntime is installed, the network must also compute what that does, at points of the region. A property of
    several boxes is proven only if each of them is. The exit code is 0 only if every certificate is accepted, every
    file that was named could be checked and every property that they are part of is proven.
    """
    from lingraft.checker.check import check_file
    from lingraft.checker.coverage import by_property
    from lingraft.checker.onnx_reader import network_of, read_network
    from lingraft.checker.runtime import Runtime, installed

    content = read_network(model)
    network = network_of(content, str(model))
    runtime = Runtime(content) if installed() else None
    boxes = None if vnnlib is None else _boxes(vnnlib, network)
    files, unread = _files(certificates)
    records, reports = [], list["Report"]()
    for file, problem in files:
        report = check_file(file, network, runtime) if not problem else None
        records.append(_record(file, problem, report, network))
        reports += [report] if report is not None else []
        if not as_json:
            _print(records[-1], report, network)
    checked = [(report.certificate, report.accepted) for report in reports if report.certificate is not None]
    properties = by_property(checked)
    compared = None if boxes is None else _compare(boxes, [c for c, accepted in checked if accepted])
    accepted = sum(record["accepted"] for record in records)
    if as_json:
        print_json(
            {
                "model": str(model),
                "model_sha256": network.sha256,
                "compared_with_onnxruntime": runtime is not None,
                "accepted": accepted,
                "certificates": len(records),
                "results": records,
                "properties": [_as_dict(coverage) for coverage in properties],
                "vnnlib": None if compared is None else {"file": str(vnnlib), **_as_dict(compared)},
                "unread": [str(path) for path in unread],
            }
        )
    else:
        _print_end(records, unread, properties, compared, vnnlib, f"{printable(model)} (sha256 {network.sha256})")
        if runtime is None:
            typer.echo("onnxruntime is not installed: that it computes the same from this file was not seen")
    whole = all(coverage.complete for coverage in [*properties, *([] if compared is None else [compared])])
    if accepted < len(records) or not whole:
        raise typer.Exit(1)


def _files(paths: list[Path]) -> tuple[list[tuple[Path, str]], list[Path]]:
    """All files to check, those and folders that cannot be with the reason, and what else is in the folders."""
    found, unread = list[tuple[Path, str]](), list[Path]()
    for path in paths:
        try:
            inside = sorted(path.iterdir()) if path.is_dir() else None
        except OSError as error:
            found.append((path, f"the folder cannot be read: {error.strerror}"))
            continue
        if inside is None:
            ending = "" if path.suffix == ".cert" else "it is not checked: its name does not end in .cert"
            found.append((path, ending))
            continue
        here = [file for file in inside if file.suffix == ".cert"]
        found += [(file, "") for file in here] or [(path, "there are no certificates (*.cert) in this folder")]
        unread += [file for file in inside if file.suffix != ".cert"]
    return found, unread


def _record(file: Path, problem: str, report: "Report | None", network: "Network") -> dict[str, Any]:
    from lingraft.checker.statement import statement

    accepted, certificate = report is not None and report.accepted, report and report.certificate
    return {
        "certificate": str(file),
        "accepted": accepted,
        "reason": problem or (report and report.reason) or None,
        "seconds": round(report.seconds, 4) if report else 0.0,
        "onnxruntime_points": report.points if report else 0,
        "proven": statement(certificate, network.outputs) if accepted and certificate else None,
        "about": _about(certificate) if certificate else None,
    }


def _about(certificate: "Certificate") -> dict[str, Any]:
    """What a certificate says about where it came from, as far as that is short and simple; nobody has checked it."""
    plain = {name[:40]: value for name, value in certificate.about.items() if isinstance(value, str | int | float)}
    return {name: str(value)[:100] for name, value in list(plain.items())[:SHOWN]}


def _boxes(vnnlib: Path, network: "Network") -> "tuple[str, list[Any]]":
    """The hash of a property's file, and its boxes as the reader of the verifier understands them."""
    from math import prod

    from numpy import concatenate

    from lingraft.checker.coverage import question
    from lingraft.checker.regular_file import read_regular
    from lingraft.formats.vnnlib import read_vnnlib

    try:
        digest = hashlib.sha256(read_regular(vnnlib, MAX_PROPERTY)).hexdigest()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LingraftError(f"cannot read {vnnlib}: {reason}. Check the path of the property.") from error
    boxes = read_vnnlib(vnnlib, prod(network.shape), network.outputs).boxes
    asked = [
        question(
            box.lower,
            box.upper,
            [concatenate([part.coefficients, part.constants[:, None]], axis=1) for part in box.unsafe],
        )
        for box in boxes
    ]
    return digest, asked


def _compare(boxes: "tuple[str, list[Any]]", proven: "list[Certificate]") -> "Coverage":
    from lingraft.checker.coverage import of_boxes

    return of_boxes(*boxes, proven)


def _as_dict(coverage: "Coverage") -> dict[str, Any]:
    return {
        "property_sha256": coverage.property_sha256,
        "boxes": coverage.boxes,
        "boxes_proven": sorted(coverage.proven),
        "proven": coverage.complete,
        "problem": coverage.problem or None,
    }


def _print(record: dict[str, Any], report: "Report | None", network: "Network") -> None:
    from lingraft.checker.statement import in_words

    name, seconds = printable(record["certificate"]), f"({record['seconds']:.2f} s)"
    if not record["accepted"]:
        typer.echo(f"{typer.style('rejected', fg='red')} {name} {seconds}: {printable(record['reason'])}")
        return
    assert report is not None
    assert report.certificate is not None
    typer.echo(f"{typer.style('accepted', fg='green')} {name} {seconds}: proven is")
    for line in in_words(report.certificate, network.outputs):
        typer.echo(f"    {printable(line)}")
    if report.points:
        typer.echo(f"    onnxruntime computes the same from the file, at {report.points} points of that region")
    if record["about"]:
        said = ", ".join(f"{name} {value}" for name, value in record["about"].items())
        typer.echo(f"    it says about itself, which nobody has checked: {printable(said)}")


def _print_end(
    records: list[dict[str, Any]],
    unread: list[Path],
    properties: "list[Coverage]",
    compared: "Coverage | None",
    vnnlib: Path | None,
    model: str,
) -> None:
    if unread:
        names = ", ".join(printable(path) for path in unread[:SHOWN])
        typer.echo(f"not read, since not *.cert: {names}{' …' if len(unread) > SHOWN else ''} ({len(unread)} in all)")
    for coverage in properties:
        typer.echo(f"property {coverage.property_sha256}, as its certificates say: {coverage}")
    if compared is not None:
        typer.echo(f"property {printable(vnnlib)} ({compared.property_sha256}), as lingraft reads it: {compared}")
    accepted, seconds = sum(record["accepted"] for record in records), sum(record["seconds"] for record in records)
    typer.echo(f"{accepted} of {len(records)} accepted in {seconds:.2f} s, about the model {model}")
