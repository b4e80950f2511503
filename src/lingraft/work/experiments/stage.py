"""A stage of a reproduction: one use of lingraft, named and shown as its command, kept by what it depends on.

The folder of a stage that makes a run is named after its settings and those of the run it starts from, so that
two rows of a table, or two tables, that need the same run find the same folder, and a change makes another one.
"""

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Stage:
    """`command` with its options, applied to the run of `parent`; a command of `MAKES_RUN` makes a run of its own."""

    command: str
    #: name of a long option without the dashes → its value; True: a flag
    options: Mapping[str, Any]
    parent: "Stage | None" = None
    #: more runs that the command is given after that of `parent`, and those it compares them with
    others: "tuple[Stage, ...]" = ()
    against: "tuple[Stage, ...]" = ()
    #: what the folder is called before the digest
    title: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """Eight characters that depend on the command, its options and the stage it starts from."""
        content = [self.command, {name: str(value) for name, value in self.options.items()}]
        needed = [self.parent.key if self.parent else None]
        needed += ["|".join(stage.key for stage in stages) for stages in (self.others, self.against) if stages]
        text = json.dumps([content, *needed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def folder(self, root: Path) -> Path:
        """The run that the command makes, or adds to."""
        if self.command in MAKES_RUN:
            return root / f"{self.title}-{self.key}"
        first = self.against[0] if self.against else self.parent
        assert first is not None
        return first.folder(root)

    def arguments(self, root: Path) -> list[str]:
        """The command line after `lingraft`."""
        words = [self.command]
        words += [str(stage.folder(root)) for stage in (self.parent, *self.others) if stage is not None]
        if self.against:
            words += ["--against", *(str(stage.folder(root)) for stage in self.against)]
        for name, value in self.options.items():
            if value is True:
                words.append(f"--{name}")
            elif value is not False:
                words += [f"--{name}", str(value)]
        return [*words, "--out", str(self.folder(root))] if self.command in MAKES_RUN else words

    def line(self, root: Path) -> str:
        """The command line that does the same."""
        return shlex.join(["lingraft", *self.arguments(root)])


#: Commands that make a run folder; the others add to the one they are given.
MAKES_RUN = ("train", "graft")
