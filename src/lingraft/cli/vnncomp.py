"""`lingraft vnncomp`."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lingraft.cli import app
from lingraft.cli.options import Json, Memory, Seed, next_step, print_json

if TYPE_CHECKING:
    from lingraft.formats.answer import Answer
    from lingraft.formats.benchmark import Entry
    from lingraft.work.vnncomp.answer_log import AnswerLog


@app.command()
def vnncomp(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A benchmark: networks, properties, instances.csv.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="For results.csv. (default: DIR/results)")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds for each instance. (default: those of instances.csv)")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Instances at a time, one thread each; 0: this process. (default: one a core)")
    ] = None,
    memory: Memory = None,
    double: Annotated[bool, typer.Option("--double", help="Search in float64 too; slower.")] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Decide all instances of a VNN-COMP benchmark and write results.csv; run it again to go on after a stop.

    An instance that cannot be read is an error in results.csv, and the exit code is 1.
    """
    from dataclasses import replace

    from lingraft.cli.holding import hold
    from lingraft.formats.benchmark import read_instances
    from lingraft.solver.budget import GIB
    from lingraft.solver.request import Limits
    from lingraft.work.vnncomp.answer_log import AnswerLog
    from lingraft.work.vnncomp.run_benchmark import decide_all

    limits = Limits(1.0 if timeout is None else timeout, None if memory is None else memory * GIB, double, seed)
    entries = read_instances(folder)
    if timeout is not None:
        entries = [replace(entry, timeout=timeout) for entry in entries]
    log = AnswerLog(out or folder / "results", folder.resolve().name, entries, {"double": double, "seed": seed})
    hold(log.folder)
    decide_all(log, limits, workers)
    figures = _figures(log)
    if as_json:
        print_json(figures)
    else:
        _print(figures)
    if figures["errors"]:
        next_step(f"see what is wrong: {figures['errors'][0]['reason']}")
        raise typer.Exit(1)
    if figures["counts"].get("timeout"):
        next_step(f"lingraft vnncomp {folder} --timeout …   (does only those that ran out of time again)")


def _figures(log: "AnswerLog") -> dict[str, Any]:
    from lingraft.formats.answer import EXIT_CODES

    answers = [(entry, log.answers[number]) for number, entry in enumerate(log.entries)]
    counts = Counter(answer.word for _, answer in answers)
    return {
        "results": str(log.folder / "results.csv"),
        "instances": len(answers),
        "counts": {word: counts[word] for word in (*EXIT_CODES, "error")},
        "seconds": round(sum(answer.seconds for _, answer in answers), 3),
        "seconds_decided": round(sum(a.seconds for _, a in answers if a.word in ("unsat", "sat")), 3),
        "unknown": _listed(answers, "unknown"),
        "errors": _listed(answers, "error"),
    }


def _listed(answers: "list[tuple[Entry, Answer]]", word: str) -> list[dict[str, Any]]:
    return [
        {"network": entry.network, "property": entry.spec, "reason": answer.reason}
        for entry, answer in answers
        if answer.word == word
    ]


def _print(figures: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

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
