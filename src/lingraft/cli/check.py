"""`lingraft check`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lingraft.cli import app
from lingraft.cli.options import Json, print_json
from lingraft.errors import LingraftError


@app.command()
def check(
    certificates: Annotated[
        list[Path], typer.Argument(metavar="CERT…", help="Certificates, or folders with certificates (*.cert).")
    ],
    model: Annotated[Path, typer.Option("--model", metavar="NET.onnx", help="The network that they are about.")],
    as_json: Json = False,
) -> None:
    """Check certificates of robustness without trusting the verifier that wrote them.

    All bounds are derived again from the network and the certificate, with rounding errors accounted for. The exit
    code is 0 only if every certificate is accepted.
    """
    from lingraft.certificates.check import check_file
    from lingraft.certificates.onnx_reader import load_network

    files = [file for path in certificates for file in (sorted(path.glob("*.cert")) if path.is_dir() else [path])]
    if not files:
        raise LingraftError(f"there are no certificates (*.cert) in {', '.join(map(str, certificates))}.")
    network = load_network(model)
    records = []
    for file in files:
        report = check_file(file, network)
        record: dict[str, Any] = {
            "certificate": str(file),
            "accepted": report.accepted,
            "reason": report.reason or None,
            "seconds": round(report.seconds, 4),
            "claim": None if report.certificate is None else report.certificate.claim(),
        }
        records.append(record)
        if not as_json:
            verdict = typer.style("accepted", fg="green") if report.accepted else typer.style("rejected", fg="red")
            typer.echo(f"{verdict} {file} ({report.seconds:.2f} s): {report.reason or record['claim']}")
    accepted = sum(record["accepted"] for record in records)
    if as_json:
        print_json({"model": str(model), "accepted": accepted, "certificates": len(records), "results": records})
    else:
        seconds = sum(record["seconds"] for record in records)
        typer.echo(f"{accepted} of {len(records)} accepted in {seconds:.2f} s")
    if accepted < len(records):
        raise typer.Exit(1)
