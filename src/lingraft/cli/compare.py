"""`lingraft compare`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.options import (
    Images,
    Json,
    OwnModel,
    RunData,
    RunEps,
    RunFolder,
    Timeout,
    ValueRange,
    given_network,
    next_step,
    parse_images,
    print_json,
)
from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from lingraft.work.vnncomp.comparison import Comparison


@app.command()
def compare(
    against: Annotated[
        str, typer.Option("--against", help="marabou, neuralsat or alpha-beta-crown.", autocompletion=offer("verifier"))
    ],
    folder: RunFolder = None,
    model: OwnModel = None,
    tool: Annotated[
        str | None, typer.Option("--tool", help="Its program, or the command that runs it. (default: searched)")
    ] = None,
    images: Images = "20",
    eps: RunEps = None,
    clip: ValueRange = "data",
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
    which = parse_images(images)
    given = given_network(folder, model)
    compared = lingraft.compare(
        given.network,
        against,
        tool=tool,
        images=which,
        eps=eps,
        clip=clip,
        timeout=timeout,
        form=form,  # type: ignore[arg-type]  # checked there
        data=data,
        out=out,
    )
    if as_json:
        print_json(compared.as_dict())
    else:
        _print(compared, f"{given.name}: ε = {compared.properties.eps:.4g}, {timeout:g} s for each image")
    if compared.contradictions:
        count, places = len(compared.contradictions), ", ".join(map(str, compared.contradictions))
        raise LingraftError(
            f"lingraft and {compared.against} contradict each other on {count} of {len(compared.pairs)} instances. One"
            f" of them is wrong; please report it. Files, answers and counterexample: {places}."
        )
    next_step(
        f"lingraft compare {given.words} --against … --eps … --timeout …   (answers are kept in {compared.folder})"
    )


def _print(compared: "Comparison", title: str) -> None:
    table = Table("instance", "lingraft", "s", compared.against, "s", "", title=title, title_justify="left")
    table.columns[2].justify = table.columns[4].justify = "right"
    for pair in compared.pairs:
        remark = "[bold red]contradiction[/]" if pair.contradiction else pair.theirs.reason or pair.ours.reason or ""
        sides = (f for a in (pair.ours, pair.theirs) for f in (a.word, f"{a.seconds:.2f}"))
        table.add_row(Path(pair.entry.spec).stem, *sides, remark)
    console = Console(highlight=False)
    console.print(table)
    for name, side in (("lingraft", "ours"), (compared.against, "theirs")):
        answers = [getattr(pair, side) for pair in compared.pairs]
        decided = sum(answer.word in ("unsat", "sat") for answer in answers)
        seconds = sum(answer.seconds for answer in answers)
        console.print(f"{name:<18}decided {decided} of {len(answers)} in {seconds:.1f} s")
