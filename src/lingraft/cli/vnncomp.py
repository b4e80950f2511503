"""`lingraft vnncomp`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.options import Json, Memory, Seed, gibibytes, next_step, print_json
from lingraft.printable import printable


@app.command()
def vnncomp(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A benchmark: networks, properties, instances.csv.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="For results.csv. (default: DIR/results)")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="FILE", help="Answers of other tools, to compare the scores."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds for each instance. (default: those of instances.csv)")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Instances at a time, one thread each; 0: this process. (default: one for each core)"),
    ] = None,
    memory: Memory = None,
    double: Annotated[bool, typer.Option("--double", help="Search in float64 too; slower.")] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Decide all instances of a VNN-COMP benchmark and write results.csv; run it again to go on after a stop.

    An instance that cannot be read is an error in results.csv, and the exit code is 1; so it is if another tool found
    a counterexample where lingraft says that there is none, or the other way round.
    """
    log = lingraft.benchmark(
        folder,
        out,
        against=against,
        timeout=timeout,
        workers=workers,
        memory=gibibytes(memory),
        double=double,
        seed=seed,
    )
    figures = log.figures()
    if as_json:
        print_json(figures)
    else:
        _print(figures)
    if figures.get("contradictions"):
        raise typer.Exit(1)
    if figures["errors"]:
        next_step(f"see what is wrong: {figures['errors'][0]['reason']}")
        raise typer.Exit(1)
    if figures["counts"].get("timeout"):
        next_step(f"lingraft vnncomp {folder} --timeout …   (does only those that ran out of time again)")


def _print(figures: dict[str, Any]) -> None:
    table = Table("", "instances", title=f"{figures['results']}", title_justify="left")
    table.columns[1].justify = "right"
    meaning = {"unsat": "unsat (the property holds)", "sat": "sat (counterexample found)"}
    for word, count in figures["counts"].items():
        table.add_row(meaning.get(word, word), f"{count:,}")
    console = Console(soft_wrap=True, highlight=False)
    console.print(table)
    decided = figures["counts"]["unsat"] + figures["counts"]["sat"]
    console.print(f"{figures['seconds']:.1f} s in all, {figures['seconds_decided']:.1f} s for the {decided:,} decided")
    for kind, items in (("error", figures["errors"]), ("unknown", figures["unknown"])):
        for item in items:
            console.print(f"{kind}: {item['network']}, {item['property']}: {item['reason']}", markup=False)
    if "scores" in figures:
        _print_scores(console, figures)


def _print_scores(console: Console, figures: dict[str, Any]) -> None:
    table = Table("tool", "score", "of the best", "unsat", "sat", "wrong", title="Score", title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for tool, score in sorted(figures["scores"].items(), key=lambda item: -item[1]["points"]):
        numbers = (f"{score[name]:,}" for name in ("unsat", "sat", "wrong"))
        table.add_row(printable(tool), f"{score['points']:,}", f"{score['percent']:.1f} %", *numbers)
    console.print(table)
    for item in figures["contradictions"]:
        said = ", ".join(f"{name}: {word}" for name, word in item.items() if name not in ("network", "property"))
        console.print("[bold red]contradiction[/]", end=" ")
        console.print(printable(f"{item['network']}, {item['property']}: {said}"), markup=False)
