"""`lingraft check`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import lingraft
from lingraft.cli import app
from lingraft.cli.options import Json, print_json
from lingraft.printable import printable

if TYPE_CHECKING:
    from lingraft.work.checking import Checked, CheckedFile

#: How many names of files that were not read are shown.
SHOWN = 8


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
    found = lingraft.check(
        certificates, model=model, vnnlib=vnnlib, seen=(lambda file: None) if as_json else _print_file
    )
    if as_json:
        print_json(found.as_dict())
    else:
        _print_end(found)
    if not found:
        raise typer.Exit(1)


def _print_file(file: "CheckedFile") -> None:
    name, seconds = printable(file.path), f"({file.seconds:.2f} s)"
    if not file.accepted:
        typer.echo(f"{typer.style('rejected', fg='red')} {name} {seconds}: {printable(file.reason)}")
        return
    typer.echo(f"{typer.style('accepted', fg='green')} {name} {seconds}: proven is")
    for line in file.words:
        typer.echo(f"    {printable(line)}")
    if file.points:
        typer.echo(f"    onnxruntime computes the same from the file, at {file.points} points of that region")
    if file.about:
        said = ", ".join(f"{name} {value}" for name, value in file.about.items())
        typer.echo(f"    it says about itself, which nobody has checked: {printable(said)}")


def _print_end(found: "Checked") -> None:
    if found.unread:
        names, count = ", ".join(printable(path) for path in found.unread[:SHOWN]), len(found.unread)
        typer.echo(f"not read, since not *.cert: {names}{' …' if count > SHOWN else ''} ({count} in all)")
    for coverage in found.properties:
        typer.echo(f"property {coverage.property_sha256}, as its certificates say: {coverage}")
    if found.compared is not None:
        which = f"{printable(found.vnnlib)} ({found.compared.property_sha256})"
        typer.echo(f"property {which}, as lingraft reads it: {found.compared}")
    seconds, model = sum(file.seconds for file in found.files), f"{printable(found.model)} (sha256 {found.sha256})"
    typer.echo(f"{found.accepted} of {len(found.files)} accepted in {seconds:.2f} s, about the model {model}")
    if not found.runtime:
        typer.echo("onnxruntime is not installed: that it computes the same from this file was not seen")
