"""`--config`: options of a command from a file; those that are typed win."""

from pathlib import Path
from typing import Annotated

import typer

#: Options that say where and how to print, not what is done.
APART = ("help", "config", "out", "restart", "as_json")


def _use(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        # here, because it loads a reader of YAML, which help does without
        from lingraft.settings_file import read_settings

        # the run that a command is about is an argument, `folder`; in the file it has the name that people read
        names = {"run" if p.name == "folder" else str(p.name): str(p.name) for p in context.command.params}
        read = read_settings(path, [name for name in names if name not in APART])
        context.default_map = {names[name]: value for name, value in read.items()}
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Options from a YAML file, such as the settings.yaml of a run; those that are typed win.",
        is_eager=True,
        callback=_use,
    ),
]
