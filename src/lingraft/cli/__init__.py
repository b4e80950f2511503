"""The `lingraft` command: parse, call, print. One command a file; nothing heavy is imported before it is needed."""

import shlex
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from lingraft.command import running
from lingraft.errors import LingraftError

#: The commands in the order in which a person would use them.
WORKFLOW = (
    "demo",
    "data",
    "zoo",
    "train",
    "evaluate",
    "score",
    "select",
    "graft",
    "verify",
    "check",
    "report",
    "export",
    "vnncomp",
    "compare",
)


class _InOrder(TyperGroup):
    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return [*WORKFLOW, *sorted(set(self.commands) - set(WORKFLOW))]

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        ctx.meta["line"] = shlex.join(["lingraft", *args])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        with running(ctx.meta["line"]):  # run folders keep the commands that wrote to them
            return super().invoke(ctx)


app = typer.Typer(
    name="lingraft",
    cls=_InOrder,
    help="Make trained networks certifiably robust by grafting linearity into them, and prove it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from lingraft import __version__

        typer.echo(f"lingraft {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Make trained networks certifiably robust by grafting linearity into them, and prove it."""


# Each module registers its commands on `app`.
from lingraft.cli import (  # noqa: E402, F401
    check,
    compare,
    data,
    demo,
    evaluate,
    export,
    graft,
    report,
    score,
    select,
    train,
    verify,
    vnncomp,
    zoo,
)


def main() -> None:
    """Run the command line; a LingraftError becomes one red line and exit code 1."""
    try:
        app()
    except LingraftError as error:
        from rich.markup import escape

        from lingraft.progress import console

        console.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
