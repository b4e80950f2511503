"""`lingraft report`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import lingraft
from lingraft.cli import app
from lingraft.cli.options import Json, next_step, print_json


@app.command()
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN…", help="Run folders made by lingraft; parents before what was grafted."),
    ],
    out: Annotated[
        Path,
        typer.Option("-o", "--out", help="File to write: .html for the whole page; .md, .csv or .tex for the table."),
    ] = Path("report.html"),
    as_json: Json = False,
) -> None:
    """Put runs side by side on one page: figures, pictures, and every image with its verdict.

    The page needs no network and no other file. Measures nothing: it says which command adds what is missing.
    """
    path = lingraft.write_report(folders, out)
    size = path.stat().st_size
    if as_json:
        print_json({"report": str(path), "bytes": size})
        return
    Console(highlight=False, soft_wrap=True).print(
        f"[cyan]{path}[/]: {len(folders)} run{'s' if len(folders) > 1 else ''}, {_size(size)}"
    )
    if path.suffix == ".html":
        next_step(f"open {path} in a browser")


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
