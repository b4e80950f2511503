"""Keep of a reproduction what others need to check its tables, or to add rows: no weights, no paths of a machine.

    python results/reproduction/keep.py reproduction/laptop results/reproduction/laptop

Of every run that a finished stage is about: its description, the history of its training, its figures, and the verdict
on every image. Of every recipe: its tables and its record. A copy of what is kept is a reproduction that
`lingraft reproduce -o` goes on with; rows that start from one of its networks need its weights, so remove the network's
folder first to have it trained again.
"""

import sys
from pathlib import Path
from typing import Any

from lingraft.files import append_line, read_json, read_lines, write_json

RECORDS = ("history.jsonl", "summary.json", "verdicts.jsonl")
TABLES = ("table.md", "table.csv")


def keep(source: Path, target: Path) -> None:
    """Write to `target` what is kept of the reproduction in `source`, in place of what was kept of the same runs."""
    stages = [
        {**stage, "line": stage["line"].replace(str(source.resolve()), f"reproduction/{source.name}")}
        for stage in read_lines(source / "stages.jsonl")
        if (source / "runs" / stage["run"] / "model.json").exists()
    ]
    (target / "stages.jsonl").unlink(missing_ok=True)
    for stage in stages:
        append_line(target / "stages.jsonl", _plain(stage))
    for name in dict.fromkeys(stage["run"] for stage in stages):
        run, kept = source / "runs" / name, target / "runs" / name
        kept.mkdir(parents=True, exist_ok=True)
        about = _plain(read_json(run / "model.json"))
        if about["parent"] is not None:
            about["parent"] = Path(about["parent"]).name
        write_json(kept / "model.json", about)
        for record in RECORDS:
            if (run / record).exists():
                (kept / record).write_bytes((run / record).read_bytes())
    for result in source.glob("*/result.json"):
        kept = target / result.parent.name
        kept.mkdir(exist_ok=True)
        whole = _plain(read_json(result))
        finished = {(stage["command"], stage["key"]): stage["line"] for stage in stages}
        for stage in whole["stages"]:
            # tables that were kept before are of runs that may not be
            stage["line"] = finished.get((stage["command"], stage["key"]), stage["line"])
            stage.pop("crc32", None)
        write_json(kept / "result.json", whole)
        for table in TABLES:
            (kept / table).write_bytes((result.parent / table).read_bytes())


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """Without the checksum, which is made anew."""
    return {name: value for name, value in record.items() if name != "crc32"}


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    keep(Path(sys.argv[1]), Path(sys.argv[2]))
