"""What is in a folder of lingraft: comparable between runs, and whether every file is whole."""

import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lingraft.checker.format import read as read_certificate
from lingraft.checker.onnx_reader import load_network
from lingraft.errors import LingraftError
from lingraft.files import read_json
from lingraft.grafting.scores import Scores
from lingraft.runs import load_tensors

#: Figures that depend on how fast the machine was at that moment, or on when and in which version something was made.
PASSING = (
    "seconds",
    "time",
    "curve",
    "domains",
    "memory",
    "started",
    "finished",
    "versions",
    "crc32",
    "stages",
    "line",
)

#: Files of a reproduction at the scale `smoke` whose figures depend on verdicts within a fraction of a second.
TIMED = ("verdicts.jsonl", "summary.json", "result.json")


def lasting(value: Any) -> Any:
    """JSON without passing figures."""
    if isinstance(value, dict):
        return {key: lasting(inner) for key, inner in value.items() if key not in PASSING}
    return [lasting(inner) for inner in value] if isinstance(value, list) else value


def files(folder: Path) -> Iterator[Path]:
    """All files of results: none that a process has for its own use only."""
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))


def content(folder: Path) -> dict[str, Any]:
    """Path in the folder → what has to be the same whatever happened on the way."""
    return {
        str(path.relative_to(folder)): _or_error(path)
        for path in files(folder)
        if path.suffix != ".damaged" and not {"reproduced", "witnesses"} <= set(path.parts)
    }


def _or_error(path: Path) -> Any:
    try:
        return _content(path)
    except (LingraftError, ValueError, OSError, zipfile.BadZipFile) as error:
        return f"unreadable: {error}"


def _content(path: Path) -> Any:
    if "reproduced" in path.parts and path.name in TIMED:
        return "there"
    if path.suffix == ".safetensors":
        tensors, metadata = load_tensors(path)
        hashes = {
            name: hashlib.sha256(tensor.contiguous().view(-1).numpy().tobytes()).hexdigest()
            for name, tensor in tensors.items()
        }
        # counterexamples depend on where branching was when time was looked at; that there is one does not
        return lasting(metadata) if path.parent.name == "witnesses" else (hashes, lasting(metadata))
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name].tobytes() for name in archive.files}
    if path.suffix == ".json":
        return lasting(read_json(path))
    if path.name == "verdicts.jsonl":
        records = _records(path)
        return {r["index"]: (r["verdict"], r["label"], r["eps"], r["weights"]) for r in records}
    if path.name == "history.jsonl":
        return [lasting(record) for record in _records(path)]
    return "there"


def _records(path: Path) -> list[dict[str, Any]]:
    # a damaged line may stay, as long as it is not taken for good
    text = path.read_text(encoding="utf-8", errors="replace")
    return [json.loads(line) for line in text.splitlines() if _is_whole_line(line)]


def _is_whole_line(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def finished(folder: Path) -> dict[str, Any]:
    """Path → results that are done: whole epochs and verdicts, in order."""
    found: dict[str, Any] = {}
    for path in files(folder):
        if path.name == "checkpoint.safetensors":
            found[str(path.relative_to(folder))] = load_tensors(path)[1]["history"]
        elif path.name in ("verdicts.jsonl", "stages.jsonl"):
            found[str(path.relative_to(folder))] = _records(path)
    return found


def lost(before: dict[str, Any], folder: Path) -> list[str]:
    """Which results that were done before are gone or were done again."""
    now = finished(folder)
    return [name for name, records in before.items() if now.get(name, [])[: len(records)] != records]


def broken(folder: Path) -> list[str]:
    """Files that are not whole. The last line of a JSON-lines file may be cut: readers know."""
    found = []
    for path in files(folder):
        try:
            if path.suffix == ".safetensors":
                load_tensors(path)
            elif path.suffix == ".json":
                read_json(path)
            elif path.suffix == ".npz":
                Scores.load(path)
            elif path.suffix == ".cert":
                read_certificate(path)
            elif path.suffix == ".onnx":
                load_network(path)
            elif path.suffix == ".jsonl":
                whole = all(map(_is_whole_line, path.read_text().splitlines()[:-1]))
                if not whole:
                    raise LingraftError("a line before the last is cut")
            elif path.suffix in (".html", ".svg"):
                if not path.read_text().rstrip().endswith(f"</{path.suffix[1:]}>"):
                    raise LingraftError("cut")
            elif path.suffix == ".png" and not path.read_bytes().endswith(b"IEND\xaeB`\x82"):
                raise LingraftError("cut")
        except LingraftError as error:
            found.append(f"{path.relative_to(folder)}: {error}")
    return found


def difference(expected: dict[str, Any], folder: Path) -> str | None:
    """How a folder differs from what is expected in it."""
    now = content(folder)
    names = [name for name in {**expected, **now} if expected.get(name) != now.get(name)]
    if not names:
        return None
    name = names[0]
    return f"{name}: {_short(now.get(name))} instead of {_short(expected.get(name))}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]}…"
