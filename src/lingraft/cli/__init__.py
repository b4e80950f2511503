"""The `lingraft` command. A file for each command: it parses, calls one public function of `lingraft`, prints.

Help, completion and `--version` load all of these files and must be instant, so a file imports at its top only what is
light: typer, rich, the modules of `lingraft` that import no torch, and `lingraft` itself, whose public names are loaded
when they are first used (`lingraft.verify(…)` in the body of a command). Tests watch what is loaded.
"""

import shlex
import sys
from io import TextIOWrapper
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from lingraft.cli.following import be_silent_if_following
from lingraft.command import running
from lingraft.errors import LingraftError
from lingraft.printable import printable
from lingraft.progress import console
from lingraft.version import __version__

#: The commands in the order in which a person would use them, under the headings of `lingraft --help`.
WORKFLOW = {
    "Start here": ("demo", "doctor", "data", "zoo", "gallery"),
    "Train and graft": ("train", "save", "evaluate", "score", "select", "graft", "front"),
    "Prove": ("verify", "check", "corners"),
    "Look at results": ("report", "runs", "show", "reproduce"),
    "Other tools": ("export", "vnncomp", "compare"),
}


class _InOrder(TyperGroup):
    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        ordered = [name for names in WORKFLOW.values() for name in names]
        return [*ordered, *sorted(set(self.commands) - set(ordered))]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        command = super().get_command(ctx, cmd_name)
        heading = next((heading for heading, names in WORKFLOW.items() if cmd_name in names), None)
        if command is not None and heading is not None:
            command.rich_help_panel = heading  # type: ignore[attr-defined]
        return command

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
    corners,
    data,
    demo,
    doctor,
    evaluate,
    export,
    front,
    gallery,
    graft,
    report,
    reproduce,
    runs,
    save,
    score,
    select,
    show,
    train,
    verify,
    vnncomp,
    zoo,
)


def main() -> None:
    """Run the command line; an error that the user can mend becomes one red line and exit code 1."""
    be_silent_if_following()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no text is a reason to fail, whatever a terminal can show
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        text = _in_words(error)
        if text is None:
            raise
        console.print(f"[bold red]error:[/] {escape(printable(text))}", highlight=False, soft_wrap=True)
        sys.exit(1)


def _in_words(error: Exception) -> str | None:
    """What to say of an error that is not a mistake in lingraft; None for one that is, whose traceback is wanted."""
    if isinstance(error, LingraftError):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}. Check the disk and its free space, then run the same command again."
    # here, because Windows lacks a module that it needs: help and much else work there
    from lingraft.process_memory import is_out_of_memory

    if is_out_of_memory(error):
        return (
            "out of memory. What was finished is kept: free some memory, or ask for less at a time (a smaller --batch,"
            " fewer --workers), and run the same command again."
        )
    return None
