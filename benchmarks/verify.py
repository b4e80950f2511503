"""The public verification problems, beside recorded results of other verifiers on the same boxes.

Each folder holds `model.onnx`, `problems.npz` (image, label, lower, upper) and `peers.csv`. One thread, process
CPU-seconds for times and for the limit, boxes as they are; an image that stays undecided counts with the limit. Under a
shorter limit than theirs, recorded answers that took longer count as undecided. A verdict that contradicts a recorded
one is printed in red and makes the exit code 1.

    LINGRAFT_PROBLEMS=folder python benchmarks/verify.py [FOLDER …] [--limit S] [--images 0:5] [--double] [--json FILE]
"""

import argparse
import csv
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from lingraft import load_onnx
from lingraft.cli.options import parse_images
from lingraft.errors import LingraftError
from lingraft.pool.problems import decide
from lingraft.solver.confirmation import checked
from lingraft.solver.request import Request
from lingraft.solver.verifier import Verifier

#: What the recorded results are about: seconds an image, and how many of the images.
LIMIT, LIMITS, COUNTS = 60.0, {"resnet2b": 120.0}, {"resnet2b": 4}

console = Console(stderr=True, highlight=False)


@dataclass
class Score:
    """Verdicts and CPU-seconds of one verifier on some images."""

    verified: int = 0
    falsified: int = 0
    undecided: int = 0
    seconds: float = 0.0
    #: domains of the images that branched, and all the seconds these took
    domains: int = 0
    branching: float = 0.0

    def add(self, verdict: str, seconds: float, domains: int, limit: float) -> None:
        """Count one image."""
        decided = verdict in ("verified", "falsified")
        self.verified += verdict == "verified"
        self.falsified += verdict == "falsified"
        self.undecided += not decided
        self.seconds += seconds if decided else limit
        if domains:
            self.domains += domains
            self.branching += seconds

    @property
    def rate(self) -> float | None:
        """Domains per CPU-second, over the images that needed any."""
        return self.domains / self.branching if self.branching else None

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "domains_per_second": self.rate}


@dataclass
class Comparison:
    """One folder: our score, those of others on exactly the same images, and contradictions."""

    folder: str
    limit: float
    images: list[int]
    ours: Score = field(default_factory=Score)
    peers: dict[str, Score] = field(default_factory=dict)
    #: by peer: our score on the images that the peer has a record of
    shared: dict[str, Score] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)


def compare(folder: Path, images: slice | None, limit: float | None, double: bool) -> Comparison:
    """Run the problems of one folder."""
    model = load_onnx(folder / "model.onnx")
    with np.load(folder / "problems.npz") as problems:
        given = {name: torch.from_numpy(problems[name]) for name in ("image", "label", "lower", "upper")}
    request = Request(model, given["image"], given["label"], lower=given["lower"], upper=given["upper"])
    recorded: dict[int, list[dict[str, str]]] = {}
    with open(folder / "peers.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            recorded.setdefault(int(row["i"]), []).append(row)
    usual = slice(COUNTS.get(folder.name)) if images is None else images
    which = list(range(len(request)))[usual]
    theirs = LIMITS.get(folder.name, LIMIT)
    limit = theirs if limit is None else limit
    result = Comparison(folder.name, limit, which)
    verifier = Verifier(request.network, double)
    for i in which:
        begun = time.process_time()
        answer = checked(request, i, decide(verifier, request.problem(i), limit, float("inf"), i))
        seconds = time.process_time() - begun
        result.ours.add(answer.verdict, seconds, answer.domains, limit)
        notes = []
        for row in recorded.get(i, []):
            name, verdict, peer_seconds = row["verifier"], row["verdict"], float(row["cpu_seconds"])
            in_time = limit >= theirs or peer_seconds <= limit
            peer = result.peers.setdefault(name, Score())
            peer.add(verdict if in_time else "timeout", peer_seconds, int(row["domains"] or 0), min(limit, theirs))
            result.shared.setdefault(name, Score()).add(answer.verdict, seconds, answer.domains, limit)
            notes.append(f"{name} {verdict} {peer_seconds:.2f} s")
            if {answer.verdict, verdict} == {"verified", "falsified"}:
                result.contradictions.append(f"{folder.name} {i}: {answer.verdict} here, {verdict} by {name}")
        why = f" ({answer.reason})" if answer.reason else ""
        lowest = f"{min(answer.alpha or answer.crown):.3f}" if answer.crown else "–"
        console.print(
            f"{folder.name} {i:3d} {answer.verdict}{why} by {answer.stage or 'none'} {seconds:.2f} s, root {lowest},"
            f" unstable {sum(answer.unstable.values())}, domains {answer.domains}, {answer.memory:.0f} MiB"
            f" [dim]| {'; '.join(notes)}[/]",
            soft_wrap=True,
        )
        if answer.error:
            console.print(f"    [red]{answer.error}[/]")
        result.records.append(
            {
                "image": i,
                "verdict": answer.verdict,
                "reason": answer.reason,
                "stage": answer.stage,
                "cpu_seconds": seconds,
                "seconds": answer.seconds,
                "domains": answer.domains,
                "unstable": answer.unstable,
                "crown": min(answer.crown, default=None),
                "alpha": min(answer.alpha, default=None),
                "memory": answer.memory,
            }
        )
    return result


def show(comparisons: list[Comparison]) -> None:
    """One line for each folder and verifier; ratios are of CPU-seconds on the images that both have."""
    table = Table("folder (limit)", "verifier", "images", "ver. / fals. / undec.", "CPU-s", "domains/s", "ratio")
    for column in table.columns:
        column.no_wrap = True
        column.justify = "left" if column.header in ("folder (limit)", "verifier") else "right"
    for result in comparisons:
        lines = [("lingraft", result.ours, "")]
        for name, peer in result.peers.items():
            ours = result.shared[name].seconds
            lines.append((name, peer, f"{peer.seconds / ours:.2f}×" if ours else ""))
        for name, score, ratio in lines:
            count = score.verified + score.falsified + score.undecided
            verdicts = f"{score.verified} / {score.falsified} / {score.undecided}"
            rate = "" if score.rate is None else f"{score.rate:,.0f}"
            folder = f"{result.folder} ({result.limit:g} s)" if name == "lingraft" else ""
            table.add_row(folder, name, str(count), verdicts, f"{score.seconds:.1f}", rate, ratio)
        table.add_section()
    Console(width=max(console.width, 110)).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", help="names of folders (default: all)")
    parser.add_argument("--limit", type=float, help="seconds an image (default: 60, resnet2b 120)")
    parser.add_argument("--images", help="a range such as 0:5, or one number (default: all, of resnet2b the first 4)")
    parser.add_argument("--double", action="store_true", help="search in float64")
    parser.add_argument("--json", type=Path, help="write everything to this file as well")
    options = parser.parse_args()
    torch.set_num_threads(1)
    time.monotonic = time.process_time  # so that the limit, too, is in CPU-seconds, whatever else the machine does
    root = Path(os.environ.get("LINGRAFT_PROBLEMS", ""))
    known = sorted(path.parent.name for path in root.glob("*/problems.npz")) if root.name else []
    if not known or not set(options.folders) <= set(known):
        parser.error(f"LINGRAFT_PROBLEMS must point at the problems; found: {', '.join(known) or 'nothing'}")
    try:
        images = None if options.images is None else parse_images(options.images)
    except LingraftError as error:
        parser.error(str(error))
    found = [compare(root / name, images, options.limit, options.double) for name in options.folders or known]
    show(found)
    if options.json:
        content = [
            {
                "folder": c.folder,
                "limit": c.limit,
                "lingraft": c.ours.as_dict(),
                "peers": {name: score.as_dict() for name, score in c.peers.items()},
                "contradictions": c.contradictions,
                "images": c.records,
            }
            for c in found
        ]
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for text in [text for c in found for text in c.contradictions]:
        console.print(f"[bold red]contradiction: {text}[/]")
    sys.exit(any(c.contradictions for c in found))


if __name__ == "__main__":
    main()
