"""What is there of the data sets, and whether it can be used."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lingraft.data.load import divide
from lingraft.data.places import MissingFile, data_root
from lingraft.data.specs import DATASETS, DataSpec
from lingraft.errors import LingraftError
from lingraft.names import lookup
from lingraft.progress import progress

#: from good to bad; a data set is as good as the worst of its two files
STATES = ("complete", "shorter", "missing", "damaged")


@dataclass(frozen=True)
class Holding:
    """What is there of one data set: the images of each split, None where the file is missing or damaged."""

    name: str
    #: one of STATES; `shorter` has fewer images than published and can be used
    state: str
    train: int | None
    validation: int | None
    test: int | None
    #: what is not as published, and how to mend it
    remarks: tuple[str, ...]


def inventory(names: Sequence[str] | None = None, folder: Path | None = None) -> list[Holding]:
    """Read all files of data sets (default: all) in `folder` (default: `data_root()`) and say what is there."""
    root = data_root() if folder is None else Path(folder)
    specs = [lookup("data set", name, DATASETS) for name in names or DATASETS]
    with progress("reading the data", len(specs)) as advance:
        holdings = []
        for spec in specs:
            holdings.append(_look(spec, root))
            advance(note=spec.name)
    return holdings


def _look(spec: DataSpec, root: Path) -> Holding:
    states, remarks = [], []
    counts: dict[str, int] = {}
    for part in ("train", "test"):
        try:
            images = spec.read(part, root)
            if part == "train":
                train, validation = divide(spec, images)
                counts |= {"train": len(train), "validation": len(validation)}
            else:
                counts["test"] = len(images)
        except (LingraftError, OSError) as error:  # a reader of the user's own need not know LingraftError
            states.append("missing" if isinstance(error, MissingFile | FileNotFoundError) else "damaged")
            remarks.append(str(error))
        else:
            expected = spec.published(part)
            if expected in (None, len(images)):
                states.append("complete")
            else:
                states.append("shorter")
                held = f"{len(images):,} of {expected:,} published images"
                remarks.append(f"{spec.name}: the {part} file has {held}; that is usable.")
    return Holding(
        name=spec.name,
        state=max(states, key=STATES.index),
        train=counts.get("train"),
        validation=counts.get("validation"),
        test=counts.get("test"),
        remarks=tuple(remarks),
    )
