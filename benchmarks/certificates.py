"""Certificates of the public verification problems: how many verified verdicts check, at what size and what cost.

Each folder holds `model.onnx` and `problems.npz` (image, label, lower, upper), or is a benchmark of VNN-COMP with an
`instances.csv`, in the folder `vnncomp`. One thread; CPU-seconds of this process
for verifying and for checking. A file has a part that does not grow with the tree (image, rounds, forms) and what each
leaf adds (its multipliers, and those of the clips above it); both are shown. A certificate that is rejected, or a
verified image or instance without one, makes the exit code 1.

    LINGRAFT_PROBLEMS=folder python benchmarks/certificates.py [FOLDER …] [--limit S] [--images 0:5] [--json FILE]
    python benchmarks/certificates.py --mutations 10000      changed certificates, none accepted whose claim is false
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from lingraft import load_onnx, verify_property
from lingraft.checker.check import check
from lingraft.checker.format import BOXES, FIRST_LINE, PARTS, Certificate, Rejected, decode, encode
from lingraft.checker.network import Network
from lingraft.checker.onnx_reader import load_network
from lingraft.cli.options import parse_images
from lingraft.errors import LingraftError
from lingraft.formats.benchmark import read_instances
from lingraft.formats.certificate_writer import CertificateWriter, claim_of_image
from lingraft.process_memory import forget_peak, peak_memory
from lingraft.solver.request import Request
from lingraft.solver.verifier import Verifier

console = Console(stderr=True, highlight=False)


@dataclass
class Score:
    """All verified images of one folder."""

    folder: str
    records: list[dict[str, Any]] = field(default_factory=list)

    def total(self, name: str, only_trees: bool | None = None) -> float:
        """Sum of a figure over images with certificates, with or without trees or both."""
        return sum(r[name] for r in self.certified if only_trees is None or bool(r["leaves"]) == only_trees)

    @property
    def certified(self) -> list[dict[str, Any]]:
        return [r for r in self.records if r["accepted"]]


def run(folder: Path, images: slice, limit: float) -> Score:
    """Verify, write, read and check."""
    network = load_network(folder / "model.onnx")
    with np.load(folder / "problems.npz") as problems:
        given = {name: torch.from_numpy(problems[name]) for name in ("image", "label", "lower", "upper")}
    model = load_onnx(folder / "model.onnx")
    request = Request(model, given["image"], given["label"], lower=given["lower"], upper=given["upper"])
    verifier, writer = Verifier(request.network), CertificateWriter(request.network, network)
    score = Score(folder.name)
    for i in list(range(len(request)))[images]:
        begun = time.process_time()
        result = verifier.verify(request.problem(i), limit, seed=i, prove=True)
        verifying = time.process_time() - begun
        if result.verdict != "verified":
            continue
        record: dict[str, Any] = {"image": i, "stage": result.stage, "verifying": verifying, "accepted": False}
        score.records.append(record)
        try:
            claim = claim_of_image(request, i, {"folder": folder.name, "index": i})
            content = encode(writer.certificate(claim, result))
        except LingraftError as error:
            record["reason"] = str(error)
            console.print(f"[red]{folder.name} {i:3d} verified by {result.stage}, {error}[/]")
            continue
        _check(record, [content], network)
        _print(folder.name, record)
    return score


def run_properties(folder: Path, which: slice, limit: float) -> Score:
    """The same for the instances of a benchmark of VNN-COMP: a certificate for each box of a property."""
    score = Score(folder.name)
    for i, entry in list(enumerate(read_instances(folder)))[which]:
        with tempfile.TemporaryDirectory() as proofs:
            begun = time.process_time()
            try:
                found = verify_property(
                    entry.onnx, entry.vnnlib, timeout=limit, certificates=proofs, seed=i, progress=False
                )
            except LingraftError as error:
                console.print(f"{folder.name} {i:3d} {error}", soft_wrap=True)
                continue
            verifying = time.process_time() - begun
            if found.answer.word != "unsat":
                continue
            record = {"image": i, "stage": found.answer.stage, "verifying": verifying, "accepted": False}
            score.records.append(record)
            contents = [path.read_bytes() for path in sorted(Path(proofs).glob("*.cert"))]
            if found.certificates is None or found.certificates.missing or len(contents) < found.boxes:
                record["reason"] = "; ".join(found.certificates.missing.values()) if found.certificates else ""
                console.print(f"[red]{folder.name} {i:3d} verified, no certificate: {record['reason']}[/]")
                continue
            _check(record, contents, load_network(entry.onnx))
        _print(folder.name, record)
    return score


def _check(record: dict[str, Any], contents: list[bytes], network: Network) -> None:
    """Check certificates and add what is seen to the record."""
    forget_peak()
    begun = time.process_time()
    found = [_checked(content, network) for content in contents]
    reason = next((reason for _, reason in found if reason), "")
    record |= {"accepted": not reason, "reason": reason, "checking": time.process_time() - begun}
    read = [certificate for certificate, _ in found if certificate is not None]
    record |= {"leaves": sum(c.leaves for c in read), "taps": sum(c.count for c in read), "memory": peak_memory()}
    record |= {"bytes": sum(map(len, contents)), "leaf_bytes": sum(map(_leaf_bytes, contents))}


def _print(folder: str, record: dict[str, Any]) -> None:
    verdict = f"[red]rejected: {record['reason']}[/]" if record["reason"] else "accepted"
    console.print(
        f"{folder} {record['image']:3d} {verdict}, verified by {record['stage']} in {record['verifying']:.2f} s,"
        f" checked in {record['checking']:.2f} s, {record['bytes'] / 1000:.1f} kB, {record['leaves']} leaves,"
        f" {record['taps']} taps, {record['memory']:.0f} MiB",
        soft_wrap=True,
    )


def _leaf_bytes(content: bytes) -> int:
    """Bytes of a file that grow with its trees."""
    start = content.index(b"\n", len(FIRST_LINE)) + 1
    header = json.loads(content[start : start + int(content[len(FIRST_LINE) : start])])
    names = {"nodes", "in_force", *(name for name, _, _ in PARTS if "multipliers" in name)}
    names |= {"clips.nodes", "clips.in_force", "clips.forms"}
    grows = {*(name for name, _, _ in BOXES)}
    return sum(
        array["bytes"]
        for array in header["arrays"]
        if array["name"] in grows or array["name"].partition(".")[2] in names
    )


def _checked(content: bytes, network: Network) -> tuple[Certificate | None, str]:
    certificate = None
    try:
        certificate = decode(content)
        check(certificate, network)
    except Rejected as error:
        return certificate, str(error)
    return certificate, ""


def show(scores: list[Score]) -> None:
    """One line a folder."""
    table = Table(
        "folder", "verified", "accepted", "verifying", "checking", "ratio", "worst", "fixed kB", "a leaf", "MiB"
    )
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for score in scores:
        done = score.certified
        verifying, checking = score.total("verifying"), score.total("checking")
        fixed = [(r["bytes"] - r["leaf_bytes"]) / 1000 for r in done]
        leaf = [r["leaf_bytes"] / 1000 / r["leaves"] for r in done if r["leaves"]]
        table.add_row(
            score.folder,
            str(len(score.records)),
            f"{len(done)} ({len(done) / max(1, len(score.records)):.0%})",
            f"{verifying:.1f} s",
            f"{checking:.1f} s",
            f"{checking / verifying:.2f}" if verifying else "",
            f"{max((r['checking'] / r['verifying'] for r in done), default=0):.2f}",
            f"≤ {max(fixed, default=0):.0f}",
            f"≤ {max(leaf, default=0):.2f}",
            f"{max((r['memory'] for r in done), default=0):.0f}",
        )
    Console(width=max(console.width, 110)).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", help="names of folders (default: all but those of VNN-COMP)")
    parser.add_argument("--limit", type=float, default=60.0, help="CPU-seconds an image (default: 60)")
    parser.add_argument("--images", help="a range such as 0:5, or one number (default: all)")
    parser.add_argument("--json", type=Path, help="write everything to this file as well")
    parser.add_argument("--mutations", type=int, help="instead, check so many changed certificates of small networks")
    options = parser.parse_args()
    if options.mutations:
        test = Path(__file__).parent.parent / "tests" / "certificates" / "test_check.py"
        command = [sys.executable, "-m", "pytest", "-q", str(test), "-k", "changed", "-s"]
        sys.exit(subprocess.run(command, env={**os.environ, "LINGRAFT_MUTATIONS": str(options.mutations)}).returncode)
    torch.set_num_threads(1)
    time.monotonic = time.process_time  # so that the limit, too, is in CPU-seconds, whatever else the machine does
    root = Path(os.environ.get("LINGRAFT_PROBLEMS", ""))
    ways = {path.parent: run for path in sorted(root.glob("*/problems.npz"))} if root.name else {}
    ways |= {path.parent: run_properties for path in sorted(root.glob("vnncomp/*/instances.csv"))} if root.name else {}
    known = {path.name: path for path in ways}
    if not known or not set(options.folders) <= set(known):
        parser.error(f"LINGRAFT_PROBLEMS must point at the problems; found: {', '.join(known) or 'nothing'}")
    try:
        images = slice(None) if options.images is None else parse_images(options.images)
    except LingraftError as error:
        parser.error(str(error))
    chosen = options.folders or [path.name for path, way in ways.items() if way is run]
    scores = [ways[known[name]](known[name], images, options.limit) for name in chosen]
    show(scores)
    if options.json:
        content = [{"folder": score.folder, "limit": options.limit, "images": score.records} for score in scores]
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    sys.exit(any(len(score.certified) < len(score.records) for score in scores))


if __name__ == "__main__":
    main()
