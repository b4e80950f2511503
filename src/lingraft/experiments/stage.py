"""A stage of a reproduction: one `lingraft` command, kept by what it depends on.

The folder of a stage that makes a run is named after its settings and those of the run it starts from, so that
two rows of a table, or two tables, that need the same run find the same folder, and a change makes another one.
"""

import hashlib
import json
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
    #: what the folder is called before the digest
    title: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """Eight characters that depend on the command, its options and the stage it starts from."""
        content = [self.command, {name: str(value) for name, value in self.options.items()}]
        text = json.dumps([content, self.parent.key if self.parent else None], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def folder(self, root: Path) -> Path:
        """The run that the command makes, or works on."""
        if self.command in MAKES_RUN:
            return root / f"{self.title}-{self.key}"
        assert self.parent is not None
        return self.parent.folder(root)

    def arguments(self, root: Path) -> list[str]:
        """The command line after `lingraft`."""
        words = [self.command]
        if self.parent is not None:
            words.append(str(self.parent.folder(root)))
        for name, value in self.options.items():
            if value is True:
                words.append(f"--{name}")
            elif value is not False:
                words += [f"--{name}", str(value)]
        return [*words, "--out", str(self.folder(root))] if self.command in MAKES_RUN else words


#: Commands that make a run folder; the others add to the one they are given.
MAKES_RUN = ("train", "graft")
