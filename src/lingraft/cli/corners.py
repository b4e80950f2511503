"""`lingraft corners`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperCommand

import lingraft
from lingraft.cli import app
from lingraft.cli.options import (
    Device,
    Json,
    Memory,
    RunData,
    RunEps,
    Seed,
    Timeout,
    Workers,
    gibibytes,
    next_step,
    print_json,
)

if TYPE_CHECKING:
    from lingraft.work.corners import CornerStudy, Figures, RunFigures


class _ManyAgainst(TyperCommand):
    """Lets `--against A B` mean `--against A --against B`: without it B would be taken for a baseline."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        spread, follows = [], False
        for word in args:
            if word == "--against":
                follows = True
                continue
            follows = follows and not word.startswith("-")
            spread += ["--against", word] if follows else [word]
        return super().parse_args(ctx, spread)


@app.command(cls=_ManyAgainst)
def corners(
    baselines: Annotated[
        list[Path], typer.Argument(metavar="BASELINE", help="Run folders of plain networks, e.g. of several seeds.")
    ],
    against: Annotated[
        list[Path], typer.Option("--against", metavar="GRAFTED…", help="Run folders of grafted (or pruned) networks.")
    ],
    images: Annotated[
        int | None,
        typer.Option(help="Look for corner cases among the first test images, this number of them. (default: all)"),
    ] = None,
    verify: Annotated[int, typer.Option(help="How many corner cases to verify, the first ones; 0: none.")] = 100,
    regular: Annotated[int, typer.Option(help="How many test images to verify, the first ones; 0: none.")] = 100,
    every_run: Annotated[
        bool, typer.Option("--every-run", help="Verify with every run, not only with the first on each side.")
    ] = False,
    timeout: Timeout = 300.0,
    workers: Workers = None,
    memory: Memory = None,
    eps: RunEps = None,
    data: RunData = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="(default: corners/corners.json of the first grafted run)"),
    ] = None,
    seed: Seed = 0,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Find the images that grafting changes the networks' mind about, and measure SA and VA on them.

    A corner case is a test image on which the modal prediction of the baselines and that of the grafted networks
    differ. Verdicts are kept in the run folders after each image; run it again to go on after a stop.
    """
    if min(len(baselines), len(against)) < 2:
        warning = typer.style("warning:", fg="yellow")
        typer.echo(
            f"{warning} a side with one network has no majority: some of the images below differ by chance,"
            " not by grafting. Name runs of several seeds.",
            err=True,
        )
    study = lingraft.corners(
        baselines,
        against,
        images=images,
        verify=verify,
        regular=regular,
        every_run=every_run,
        timeout=timeout,
        workers=workers,
        memory=gibibytes(memory),
        eps=eps,
        data=data,
        out=out,
        seed=seed,
        device=device,
    )
    if as_json:
        print_json(study.as_dict())
    else:
        _print(study)
    if study.unknown:
        next_step(f"the same with --timeout {2 * timeout:g}   (tries only unknown images again: {study.unknown})")
    else:
        next_step(f"see {out or against[0] / 'corners' / 'corners.json'} for the images and all counts")


def _print(study: "CornerStudy") -> None:
    title = (
        f"{study.data}, ε = {study.eps:.4g}: {len(study.corner_cases):,} corner cases of {study.images:,} test images"
    )
    table = Table("", title=title, title_justify="left")
    for name in ("VA corner cases", "SA corner cases", "VA regular set", "SA regular set"):
        table.add_column(name, justify="right")
    for side, runs in (("baseline", study.baselines), ("grafted", study.grafted)):
        for run in runs:
            table.add_row(f"{side} {run.run}", *_cells(run, study.baselines[0] if run is study.grafted[0] else None))
        if len(runs) > 1:
            means = study.means["baselines" if side == "baseline" else "grafted"]
            shares = [means[which][what] for which in ("corners", "regular") for what in ("va", "sa")]
            table.add_row(f"mean of {side}", *map(_percent, shares), end_section=True)
    console = Console(soft_wrap=True, highlight=False)
    console.print(table)
    first = study.grafted[0]
    counts = {"corner cases": first.corners.verification, "regular images": first.regular.verification}
    verified = [f"the first {summary.images:,} {name}" for name, summary in counts.items() if summary is not None]
    if verified:
        console.print(
            f"VA of {' and '.join(verified)}, {study.timeout:g} s for each image; in brackets: grafted − baseline"
        )


def _cells(run: "RunFigures", baseline: "RunFigures | None") -> list[str]:
    """VA and SA of a run, with the difference to the first baseline behind them where that is given."""
    cells = []
    for which in ("corners", "regular"):
        figures: Figures = getattr(run, which)
        before: Figures | None = None if baseline is None else getattr(baseline, which)
        for what in ("va", "sa"):
            share, other = getattr(figures, what), getattr(before, what, None)
            change = "" if share is None or other is None else f" ({100 * (share - other):+.2f})"
            cells.append(_percent(share) + change)
    return cells


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.2%}"
