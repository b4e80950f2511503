"""The commands that are disturbed, each with what has to be there before it; on digits, in seconds."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contents import content
from processes import Outcome, count_operations, run

SMALL = {
    "train": "train --data digits --model digits-cnn --epochs 3 --validation-images 20 --threads 1 -o run",
    "evaluate": "evaluate run --steps 2 --restarts 1 --images 20 --threads 1",
    "score": "score run --score-images 40 --bound-images 5 --bounds intervals",
    "select": "select run --ratio 0.3",
    "graft": "graft run --ratio 0.5 --epochs 2 --score-images 40 --bound-images 5 --bounds intervals --images 20"
    " --threads 1 -o grafted",
    "verify": "verify run --images 8 --timeout 60 --workers 0 --eps 0.05 --certificates run/certificates",
    "report": "report run grafted -o report.html",
    "reproduce": "reproduce main --scale smoke --row base -o reproduced",
}


@dataclass
class Step:
    """A command of the story, undisturbed: the folder before it, what is in it after it, and how it went."""

    name: str
    arguments: list[str]
    before: Path
    expected: dict[str, Any] = field(default_factory=dict)
    operations: int = 0
    seconds: float = 0.0

    def again(self, place: Path) -> Outcome:
        """Run it in `place`."""
        return run(self.arguments, place)

    def begin(self, place: Path) -> Path:
        """Make `place` a copy of the folder before the command."""
        shutil.copytree(self.before, place, dirs_exist_ok=True)
        return place


def tell(folder: Path, commands: dict[str, str]) -> dict[str, Step]:
    """Run the story undisturbed, keeping the state before each step."""
    here = folder / "state"
    here.mkdir(parents=True)
    steps = {}
    for name, line in commands.items():
        before = folder / f"before-{name}"
        shutil.copytree(here, before)
        step = Step(name, line.split(), before)
        outcome = step.again(here)
        if outcome.code:
            raise SystemExit(f"{outcome.command} failed undisturbed: {outcome.errors}")
        step.expected, step.seconds = content(here), outcome.seconds
        steps[name] = step
    for step in steps.values():
        place = step.begin(folder / f"count-{step.name}")
        step.operations = count_operations(step.arguments, place)
        shutil.rmtree(place)
    return steps
