"""Options that several commands share, and how they print."""

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from lingraft.errors import LingraftError


def parse_eps(text: str) -> float:
    """A perturbation radius in pixels of [0, 1]: `0.1` or a fraction such as `2/255`."""
    try:
        eps = float(Fraction(text)) if "/" in text else float(text)
    except (ValueError, ZeroDivisionError) as error:
        raise LingraftError(f"--eps {text!r} is not a number. Write it like 0.1 or 2/255.") from error
    if not (math.isfinite(eps) and 0 <= eps <= 1):
        raise LingraftError(f"--eps {text} must lie between 0 and 1: it is a distance in pixels of [0, 1], e.g. 2/255.")
    return eps


def parse_images(text: str) -> slice:
    """Which images of a data set: `0:100`, `5:` or one number, which is that image alone."""
    parts = [part.strip() for part in text.split(":")]
    if len(parts) > 2 or not all(part.isdecimal() or (len(parts) == 2 and not part) for part in parts):
        raise LingraftError(f"--images {text!r} is not a range. Write it like 0:100, or 7 for one image.")
    if len(parts) == 1:
        return slice(int(parts[0]), int(parts[0]) + 1)
    return slice(int(parts[0] or 0), int(parts[1]) if parts[1] else None)


Eps = Annotated[str, typer.Option("--eps", help="Perturbation radius in pixels of [0, 1], e.g. 2/255 or 0.1.")]
Images = Annotated[str, typer.Option("--images", help="Which images of the test set: 0:100, 5: or one number.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random; the same seed gives the same result.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1 … or auto (cuda where there is one).")]
Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON on standard output.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by lingraft.")]


def print_json(content: Any) -> None:
    """Print `content` as JSON, alone on standard output."""
    typer.echo(json.dumps(content, indent=2))


def next_step(*lines: str) -> None:
    """Say, on standard error, what the user can do next."""
    for line in lines:
        typer.secho(f"next: {line}", fg="cyan", err=True)
