"""`lingraft reproduce`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lingraft.cli import app
from lingraft.cli.options import Json, next_step, print_json
from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from lingraft.work.experiments import Plan, Reproduction, Result
    from lingraft.work.experiments.stage import Stage


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A recipe of --list, or all.")] = None,
    scale: Annotated[
        str, typer.Option(help="smoke: digits, minutes; laptop: hours on two cores; paper: the published schedule.")
    ] = "laptop",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder to write. (default: reproduction/SCALE)")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How often to repeat each row; gives mean ± deviation.")] = 1,
    network: Annotated[
        list[str] | None, typer.Option(help="Only networks whose name contains this; may be given again.")
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option(help="Only rows whose name contains this; may be given again.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show the recipes, and how long each takes.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands that are still to run.")] = False,
    as_json: Json = False,
) -> None:
    """Reproduce a table or figure of the paper: train, graft, measure, and put the figures beside the paper's.

    Runs are shared by all recipes of a scale and kept; the same command goes on after a stop.
    """
    from lingraft.names import lookup
    from lingraft.work.experiments import Reproduction, collect, make_plan, recipes, scales

    size = lookup("scale", scale, scales())
    if listing:
        return _list(as_json)
    if name is None:
        raise LingraftError("name a recipe, or all; `lingraft reproduce --list` shows them.")
    chosen = recipes() if name == "all" else {name: lookup("recipe", name, recipes())}
    plans = [make_plan(each, recipe, scale, size, seeds, network or (), row or ()) for each, recipe in chosen.items()]
    reproduction = Reproduction(out or Path("reproduction") / scale, _run_command)
    if dry_run:
        return _print_missing(reproduction, plans, as_json)
    written: dict[str, list[str]] = {}
    for plan in plans:
        reproduction.run(plan, _announce(plan))
        results = collect(plan, reproduction.runs)
        written[plan.name] = [str(path) for path in reproduction.write(plan, results)]
        if not as_json:
            _print(plan, results, written[plan.name])
    if as_json:
        print_json(written)
    next_step(f"open {written[plans[-1].name][-1]} in a browser")
    return None


def _run_command(arguments: list[str]) -> None:
    """Run a `lingraft` command in this process, its figures on standard error: ours are printed at the end."""
    import contextlib
    import sys

    with contextlib.redirect_stdout(sys.stderr):
        app(arguments, standalone_mode=False)


def _announce(plan: "Plan") -> Any:
    from lingraft.progress import console
    from lingraft.work.experiments.plan import minutes

    def announce(stage: "Stage", number: int, count: int) -> None:
        about = f"about {minutes(stage, plan.scale):.0f} min" if minutes(stage, plan.scale) >= 1 else "under a minute"
        title = f"[bold]{plan.name}[/] {number}/{count}: {stage.command} {stage.title}".rstrip()
        console.print(f"{title} ({about})", highlight=False, soft_wrap=True)

    return announce


def _print(plan: "Plan", results: "list[Result]", written: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    from lingraft.work.experiments.recipe import COLUMNS
    from lingraft.work.experiments.tables import by_network, show, show_paper

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"\n[bold]{plan.recipe.title}[/] (the paper: {plan.recipe.paper}); scale {plan.scale_name}")
    for heading, found in by_network(results).items() if plan.recipe.columns else ():
        table = Table("", title=f"{heading}; in brackets the paper's", title_justify="left")
        for name in plan.recipe.columns:
            table.add_column(COLUMNS[name][0], justify="right")
        for result in found:
            cells = (f"{show(result, name)} ({show_paper(result, name)})" for name in plan.recipe.columns)
            table.add_row(result.name, *cells)
        console.print(table)
    console.print(f"written: [cyan]{'  '.join(written)}[/]")


def _print_missing(reproduction: "Reproduction", plans: "list[Plan]", as_json: bool) -> None:
    lines: dict[str, None] = {}
    for plan in plans:
        for stage in reproduction.missing(plan):
            lines[shlex.join(["lingraft", *stage.arguments(reproduction.runs)])] = None
    if as_json:
        print_json(list(lines))
        return
    for line in lines:
        typer.echo(line)


def _list(as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from lingraft.work.experiments import make_plan, recipes, scales

    found: list[dict[str, Any]] = [
        {
            "name": name,
            "title": recipe.title,
            "paper": recipe.paper,
            "networks": [network.name for network in recipe.networks],
            "minutes": {
                scale: round(make_plan(name, recipe, scale, size).minutes, 1) for scale, size in scales().items()
            },
        }
        for name, recipe in recipes().items()
    ]
    if as_json:
        print_json(found)
        return
    table = Table(
        "recipe", "what", "in the paper", title="About how long each takes alone, on two cores", title_justify="left"
    )
    for scale in scales():
        table.add_column(scale, justify="right")
    for each in found:
        table.add_row(each["name"], each["title"], each["paper"], *map(_duration, each["minutes"].values()))
    Console().print(table)
    next_step("lingraft reproduce main --scale smoke   (runs are shared: together they take less)")


def _duration(minutes: float) -> str:
    if minutes < 60:
        return f"{max(1, round(minutes))} min"
    return f"{minutes / 60:.1f} h" if minutes < 48 * 60 else f"{minutes / 60 / 24:.0f} days"
