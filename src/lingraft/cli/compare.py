"""`lingraft compare`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.options import (
    Images,
    Json,
    RunData,
    RunEps,
    RunFolder,
    Timeout,
    next_step,
    parse_eps,
    parse_images,
    print_json,
)
from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from lingraft.work.vnncomp.comparison import Pair


@app.command()
def compare(
    folder: RunFolder,
    against: Annotated[
        str, typer.Option("--against", help="marabou, neuralsat or alpha-beta-crown.", autocompletion=offer("verifier"))
    ],
    tool: Annotated[
        str | None, typer.Option("--tool", help="Its program, or the command that runs it. (default: searched)")
    ] = None,
    images: Images = "20",
    eps: RunEps = None,
    timeout: Timeout = 60.0,
    form: Annotated[
        str | None,
        typer.Option("--form", help="Of the network it gets; see lingraft export. (default: as it likes it)"),
    ] = None,
    data: RunData = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="For everything. (default: RUN/compare)")
    ] = None,
    as_json: Json = False,
) -> None:
    """Let lingraft and another verifier decide the same images, one after the other with one thread each.

    Network and properties are exported, answers are kept: run it again to go on after a stop. If one finds a
    counterexample, confirmed by onnxruntime, where the other proves that there is none, the instance is saved and the
    exit code is 1.
    """
    from dataclasses import replace

    import lingraft
    from lingraft.cli.holding import hold
    from lingraft.data import load as load_data
    from lingraft.formats.benchmark import NETWORK, read_instances, write_benchmark
    from lingraft.pool.place import Place
    from lingraft.runs import Run
    from lingraft.solver.request import Limits
    from lingraft.work.vnncomp.answer_log import AnswerLog
    from lingraft.work.vnncomp.comparison import pairs
    from lingraft.work.vnncomp.other_verifiers import find_tool
    from lingraft.work.vnncomp.run_benchmark import complete, decide_all
    from lingraft.work.vnncomp.tool_runner import ToolRunner

    description = Run(folder).describe()
    limits = Limits(timeout)
    radius, which = description.radius(None if eps is None else parse_eps(eps)), parse_images(images)
    other, command = find_tool(against, tool)
    form = form or other.form
    test = load_data(description.data_set(data), "test")
    place = folder / "compare" if out is None else out
    model, chosen = lingraft.load(folder), test.take(which)
    description.check_fits(chosen, "test")
    hold(place)
    their_network = NETWORK if form == "output" else f"onnx/network_{form}.onnx"
    for path, its_form in {NETWORK: "output", their_network: form}.items():
        lingraft.export_onnx(
            model,
            place / path,
            input_shape=description.input_shape,
            form=its_form,  # type: ignore[arg-type]  # checked there
            images=chosen.pixels(slice(8)),
        )
    written = write_benchmark(place, model, chosen, which.start or 0, radius, timeout)
    if command is None:
        raise LingraftError(
            f"{other.name} was not found. Install it: {other.install}. The {written['properties']} instances for it are"
            f" listed in {place / 'instances.csv'}: network {place / their_network}, properties in {place / 'vnnlib'}."
        )
    entries = read_instances(place)
    ours = AnswerLog(place / "lingraft", folder.resolve().name, entries, {"version": lingraft.__version__})
    decide_all(ours, limits, Place(1))
    their_entries = [replace(entry, network=their_network) for entry in entries]
    theirs = AnswerLog(place / other.name, folder.resolve().name, their_entries, {"command": command})
    runner = ToolRunner(other, command)
    complete(theirs, lambda numbers: runner.answers(their_entries, numbers), other.name)
    compared = pairs(entries, ours.answers, theirs.answers)
    saved = [str(pair.save(place / "contradictions")) for pair in compared if pair.contradiction]
    if as_json:
        print_json({"against": other.name, **written, **_totals(compared), "contradictions": saved})
    else:
        _print(compared, other.name, f"{folder}: ε = {radius:.4g}, {timeout:g} s an image")
    if saved:
        raise LingraftError(
            f"lingraft and {other.name} contradict each other on {len(saved)} of {len(compared)} instances. One of them"
            f" is wrong; please report it. Files, answers and counterexample: {', '.join(saved)}."
        )
    next_step(f"lingraft compare {folder} --against … --eps … --timeout …   (answers are kept in {place})")


def _totals(compared: "list[Pair]") -> dict[str, Any]:
    sides = {"ours": [p.ours for p in compared], "theirs": [p.theirs for p in compared]}
    totals: dict[str, Any] = {"instances": [pair.as_dict() for pair in compared]}
    for side, answers in sides.items():
        words = [answer.word for answer in answers]
        totals[side] = {word: words.count(word) for word in sorted(set(words))}
        totals[f"{side}_seconds"] = round(sum(answer.seconds for answer in answers), 3)
    return totals


def _print(compared: "list[Pair]", name: str, title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("instance", "lingraft", "s", name, "s", "", title=title, title_justify="left")
    table.columns[2].justify = table.columns[4].justify = "right"
    for pair in compared:
        remark = "[bold red]contradiction[/]" if pair.contradiction else pair.theirs.reason or pair.ours.reason or ""
        sides = (f for a in (pair.ours, pair.theirs) for f in (a.word, f"{a.seconds:.2f}"))
        table.add_row(Path(pair.entry.spec).stem, *sides, remark)
    console = Console(highlight=False)
    console.print(table)
    for side, answers in (("lingraft", [p.ours for p in compared]), (name, [p.theirs for p in compared])):
        decided = sum(answer.word in ("unsat", "sat") for answer in answers)
        seconds = sum(answer.seconds for answer in answers)
        console.print(f"{side:<18}decided {decided} of {len(answers)} in {seconds:.1f} s")
