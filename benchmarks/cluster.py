"""Verification on a local Ray: one worker against two on the same 40 images, and two of which one is killed.

Each folder of problems holds `model.onnx` and `problems.npz` (image, label, lower, upper). Ray is started once; each
run starts its own workers, and that counts. Seconds are wall-clock; on a busy machine the CPU-seconds of the workers
say more: the ratio that a machine with nothing else to do would reach is that of the CPU-seconds of one worker to those
of the busier of two. Verdicts that differ between the runs make the exit code 1.

    LINGRAFT_PROBLEMS=folder python benchmarks/cluster.py [FOLDER:IMAGES …] [--limit S] [--json FILE]
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from lingraft import load_onnx
from lingraft.cli.options import parse_images
from lingraft.errors import LingraftError
from lingraft.pool.images import verify_each
from lingraft.pool.place import Place
from lingraft.pool.ray.actors import Actor
from lingraft.pool.ray.connection import LOCAL, connected
from lingraft.solver.request import Limits, Request

#: 40 images that are all decided in seconds: without those that stay undecided for minutes, whose time is the limit.
PROBLEMS = ("cnn_b_graft50:0:1", "cnn_b_graft50:2:4", "cnn_b_graft50:5:30", "mnist_cnn_a_adv:0:12")

console = Console(stderr=True, highlight=False)


class CpuTimes:
    """CPU-seconds of the processes of Ray's actors, looked at until the context ends."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "CpuTimes":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        tick = os.sysconf("SC_CLK_TCK")
        while not self._done.wait(0.5):  # not more often: a look at all processes takes CPU from the workers
            for pid in actors():
                try:
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                self.seconds[pid] = (int(fields[11]) + int(fields[12])) / tick


def actors() -> list[int]:
    """Processes of our actors, which Ray names so; those of another Ray on this machine are not below this process."""
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if f"ray::{Actor.__name__}".encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue

    def ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and ours(parents[pid]))

    return [pid for pid in found if ours(pid)]


def read(folder: Path, which: list[str]) -> list[tuple[str, Request, list[int]]]:
    """Name, problems and the numbers of those that are wanted, for each folder."""
    chosen: dict[str, list[int]] = {}
    for text in which:
        name, _, images = text.partition(":")
        part = parse_images(images or "0:")
        count = len(np.load(folder / name / "problems.npz")["label"])
        chosen.setdefault(name, []).extend(range(count)[part])
    requests = []
    for name, numbers in chosen.items():
        with np.load(folder / name / "problems.npz") as file:
            tensors = {key: torch.from_numpy(file[key]) for key in ("image", "label", "lower", "upper")}
        model = load_onnx(folder / name / "model.onnx")
        request = Request(model, tensors["image"], tensors["label"], lower=tensors["lower"], upper=tensors["upper"])
        requests.append((name, request, numbers))
    return requests


def run(requests: list[tuple[str, Request, list[int]]], workers: int, limit: float, kill: bool) -> dict[str, Any]:
    """Verdicts by image, wall-clock seconds and CPU-seconds by worker; `kill` ends one worker in the middle."""
    verdicts: dict[str, str] = {}
    total = sum(len(numbers) for _, _, numbers in requests)
    cpu_seconds: dict[str, list[float]] = {}
    killed = 0
    begun = time.monotonic()
    for name, request, numbers in requests:
        with CpuTimes() as cpu:
            for i, result in verify_each(request, Limits(limit), Place(workers, LOCAL), numbers):
                verdicts[f"{name} {i}"] = " ".join(filter(None, (result.verdict, result.reason, result.error)))
                if kill and not killed and len(verdicts) >= total // 3:
                    killed = actors()[0]
                    os.kill(killed, signal.SIGKILL)
        cpu_seconds[name] = sorted((round(s, 2) for s in cpu.seconds.values()), reverse=True)
    return {
        "workers": workers,
        "killed": bool(killed),
        "seconds": round(time.monotonic() - begun, 2),
        "cpu_seconds": cpu_seconds,
        "verdicts": dict(sorted(verdicts.items())),
    }


def busiest(run: dict[str, Any]) -> float:
    """CPU-seconds of the busiest worker of each folder: what it takes on a machine with nothing else to do."""
    return sum(max(seconds) for seconds in run["cpu_seconds"].values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=list(PROBLEMS), metavar="FOLDER:IMAGES")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds an image, by the clock")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    if "LINGRAFT_PROBLEMS" not in os.environ:
        raise LingraftError("LINGRAFT_PROBLEMS does not name the folder of the problems.")
    torch.set_num_threads(1)
    requests = read(Path(os.environ["LINGRAFT_PROBLEMS"]), options.problems)
    images = sum(len(numbers) for _, _, numbers in requests)
    runs = []
    with connected(LOCAL, 2):
        for workers, kill in ((1, False), (2, False), (2, True)):
            console.print(f"{images} images, {workers} workers{', one killed' if kill else ''} …")
            runs.append(run(requests, workers, options.limit, kill))
    one, two, _ = runs
    figures = {
        "images": images,
        "limit": options.limit,
        "load": os.getloadavg(),
        "ratio": round(one["seconds"] / two["seconds"], 3),
        "ratio_of_cpu_seconds": round(busiest(one) / busiest(two), 3),
        "same_verdicts": all(r["verdicts"] == one["verdicts"] for r in runs),
        "runs": runs,
    }
    table = Table(
        "workers", "seconds", "CPU-seconds of workers, by folder", "verdicts", title=f"{images} images, local Ray"
    )
    for r in runs:
        counts = {v: list(r["verdicts"].values()).count(v) for v in sorted(set(r["verdicts"].values()))}
        what = f"{r['workers']}{' (one killed)' if r['killed'] else ''}"
        cpu = "; ".join(" + ".join(f"{s:.1f}" for s in seconds) for seconds in r["cpu_seconds"].values())
        table.add_row(what, f"{r['seconds']:.1f}", cpu, ", ".join(f"{n} {v}" for v, n in counts.items()))
    console.print(table)
    ratios = f"{figures['ratio']} times as fast as one; by CPU-seconds {figures['ratio_of_cpu_seconds']}"
    console.print(f"two workers are {ratios}")
    if not figures["same_verdicts"]:
        console.print("[bold red]the verdicts differ[/]")
    text = json.dumps(figures, indent=2)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0 if figures["same_verdicts"] else 1


if __name__ == "__main__":
    sys.exit(main())
