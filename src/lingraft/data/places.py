"""Where data files are looked for, and what is said when one is missing or damaged."""

import os
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from lingraft.errors import LingraftError

VARIABLE = "LINGRAFT_DATA"


class MissingFile(LingraftError):
    """A data file is nowhere; any other LingraftError of a reader means that it is there and cannot be used."""


def data_root() -> Path:
    """The folder of all data sets: LINGRAFT_DATA, or lingraft's folder in the platform's cache."""
    if value := os.environ.get(VARIABLE):
        return Path(value).expanduser()
    return Path(platformdirs.user_cache_dir("lingraft", appauthor=False))


def find(candidates: Sequence[Path]) -> Path | None:
    """The first candidate that is a file; one in a folder that we may not look into is none."""
    return next((path for path in candidates if os.path.isfile(path)), None)


def missing(dataset: str, what: str, folders: Sequence[Path]) -> MissingFile:
    """The error for a file, or one of several, that is in none of the folders."""
    return MissingFile(
        f"{dataset}: {what} was not found in {', '.join(map(str, folders))}. "
        f"Get it with `lingraft data fetch {dataset}`, or set {VARIABLE} to the folder that has it."
    )


def damaged(dataset: str, path: Path | str, why: str) -> LingraftError:
    """The error for a file that cannot be used."""
    return LingraftError(
        f"{dataset}: {path} cannot be used: {why}. Delete it and get it again with `lingraft data fetch {dataset}`."
    )
