"""`--ray [ADDRESS]`: an option whose value may be left out, which typer itself does not know."""

import re
from typing import Annotated

import typer
from typer.core import TyperCommand

#: What is taken as the value of --ray; anything else after it is the next argument.
ADDRESS = re.compile(r"auto|local|ray://.+|[^/\s]+:\d+")


class RayCommand(TyperCommand):
    """A command with --ray; without an address it means `auto`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        filled = []
        for arg, following in zip(args, [*args[1:], ""], strict=False):
            filled.append(arg)
            if arg == "--ray" and not ADDRESS.fullmatch(following):
                filled.append("auto")
        return super().parse_args(ctx, filled)


RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Verify on a Ray cluster, e.g. 10.0.0.1:6379; without an address on that of this machine.",
    ),
]
