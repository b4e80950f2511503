"""How well time limits are kept: `lingraft verify --onnx --vnnlib` as a process of its own, at several limits.

The command counts its time from where its code begins; what Python and torch take to start comes before that and is
part of these figures. For each instance: its answer, seconds of the clock and of the processor from the start of the
process to its end, and by how much both are over the limit. Where the core is shared the clock says little about the
code: then the processor's seconds judge it.

    python benchmarks/limits.py DIR [--families acasxu_2023 …] [--limits 2 4 10] [--instances N]
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from lingraft.formats.benchmark import Entry, read_instances


def run(entry: Entry, limit: float) -> tuple[str, float, float]:
    """The answer (its first word), seconds of the clock and of the processor."""
    named = [(name, str(path)) for name, path in entry.files.items()]
    network = named[0][1] if len(named) == 1 and not named[0][0] else str(named)
    command = [sys.executable, "-m", "lingraft", "verify", "--onnx", network, "--vnnlib", str(entry.vnnlib)]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([*command, "--timeout", str(limit)], capture_output=True, text=True, check=False)
    clock, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return (done.stdout.split() or ["error"])[0], clock, spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--families", nargs="+", help="default: all")
    parser.add_argument("--limits", type=float, nargs="+", default=[2.0, 4.0, 10.0])
    parser.add_argument("--instances", type=int, default=1, help="of each family, spread over it")
    options = parser.parse_args()
    names = options.families or sorted(path.parent.name for path in options.folder.glob("*/instances.csv"))
    print("| family | property | limit | answer | clock | over | processor | over |\n|" + " --- |" * 8, flush=True)
    for name in names:
        entries = read_instances(options.folder / name)
        for entry in entries[:: max(1, len(entries) // options.instances)][: options.instances]:
            for limit in options.limits:
                word, clock, spent = run(entry, limit)
                figures = " | ".join(f"{number:.1f}" for number in (clock, clock - limit, spent, spent - limit))
                print(f"| {name} | {entry.vnnlib.name} | {limit:g} | {word} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
