"""Doing a stage of a reproduction: the function of `work/` that its command is about."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from lingraft.command import running
from lingraft.work.corners import corners
from lingraft.work.evaluate import evaluate
from lingraft.work.experiments.stage import MAKES_RUN, Stage
from lingraft.work.graft import graft_and_tune
from lingraft.work.score import score
from lingraft.work.train import train
from lingraft.work.verify import verify

#: command → the function; it takes the run folders of the stage and then its options
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "train": lambda *, model, data, out, **options: train(model, data, run=out, **options),
    "graft": graft_and_tune,
    "score": score,
    "evaluate": evaluate,
    "verify": verify,
    "corners": corners,
}

#: option → how its value in a recipe, which is what is typed on a command line, is read
_READ: dict[str, Callable[[Any], Any]] = {
    "eps": lambda text: float(Fraction(text)),
    "gamma": float,
    "regularize": lambda text: tuple(text.split(",")),
}


def keywords(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a command as arguments of its function; `false` leaves one out."""
    return {
        name.replace("-", "_"): _READ[name](value) if name in _READ else value
        for name, value in options.items()
        if value is not False
    }


def perform(stage: Stage, root: Path) -> None:
    """Do a stage whose runs are below `root`; the runs say that its command did it."""
    folders: list[Any] = [each.folder(root) for each in (stage.parent, *stage.others) if each is not None]
    if stage.against:
        folders = [folders, [each.folder(root) for each in stage.against]]
    options = keywords(stage.options)
    if stage.command in MAKES_RUN:
        options["out"] = stage.folder(root)
    with running(stage.line(root)):
        FUNCTIONS[stage.command](*folders, **options)
