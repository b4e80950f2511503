"""The tampering campaign: `python tests/fuzz/tampering/campaign.py --count 100000`, or `make fuzz`.

Makes real certificates about small networks of every kind (convolutional, residual, pooled, grafted …) and changes them,
or the ONNX files, in a hundred ways. The checker sees each; what it accepts has to be true: for certificates in rational
numbers, for files by onnxruntime, without and with optimizations, and in rational numbers, too. A file that was changed
is also given certificates of what the checker itself reads in it, so that a misreading is a false acceptance. The table
counts by kind of change; exit code 1 if anything false was accepted, or if a check crashed or took more than 10 s or 1 GiB.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # forks of a process that has started threads would hang

from cases import MODELS, Case, make_cases
from crew import Crew
from judge import BYTES, KINDS, SECONDS, Outcome
from plants import PLANTS

#: Verdicts that the campaign is about, in the order of the table.
VERDICTS = ("rejected", "accepted", "refused elsewhere", "false", "crash", "slow", "memory")


class Table:
    """Counts by kind of change."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
        self.seconds, self.memory = Counter[str](), Counter[str]()
        self.reasons: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
        self.findings: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
        self.cases: Counter[str] = Counter()

    def add(self, number: int, outcome: Outcome) -> None:
        """Count one."""
        kind = outcome.kind
        self.counts[kind][outcome.verdict] += 1
        self.counts[kind]["known false"] += outcome.known_false
        self.seconds[kind] = max(self.seconds[kind], outcome.seconds)  # type: ignore[assignment]
        self.memory[kind] = max(self.memory[kind], outcome.memory)
        self.cases[outcome.case] += 1
        if outcome.verdict == "rejected":
            self.reasons[kind][outcome.reason] += 1
        if outcome.bad or outcome.verdict == "refused elsewhere":
            self.findings.setdefault((outcome.verdict, kind, outcome.reason), []).append((number, outcome.change))

    def text(self) -> str:
        """The table."""
        lines = [f"{'':<32}" + "".join(f"{name:>10}" for name in COLUMNS)]
        for kind in [*KINDS, "all"]:
            lines.append(f"{kind:<32}" + "".join(f"{value:>10}" for value in self.row(kind)))
        return "\n".join(lines)

    def row(self, kind: str) -> list[str]:
        """Figures of one kind, or of all."""
        kinds = list(KINDS) if kind == "all" else [kind]
        total = sum((self.counts[k] for k in kinds), Counter[str]())
        shown = [sum(total[v] for v in VERDICTS), *(total[v] for v in ("known false", *VERDICTS))]
        return [
            *(f"{n:,}" for n in shown),
            f"{max(self.seconds[k] for k in kinds):.2f}",
            f"{max(self.memory[k] for k in kinds) >> 20}",
        ]

    @property
    def failures(self) -> int:
        """What must not be."""
        return sum(counts[v] for counts in self.counts.values() for v in ("false", "crash", "slow", "memory"))

    def listed(self) -> str:
        """Findings, the worst first."""
        lines = []
        for (verdict, kind, reason), found in sorted(
            self.findings.items(), key=lambda e: (-VERDICTS.index(e[0][0]), -len(e[1]))
        ):
            changes = "; ".join(sorted({change for _, change in found})[:3])
            lines.append(
                f"{verdict:<18}{len(found):>6}  {kind}: {reason}\n{'':26}{changes}; numbers {[n for n, _ in found[:4]]}"
            )
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        kinds = {
            kind: {**self.counts[kind], "slowest": self.seconds[kind], "bytes": self.memory[kind], "reasons": self.reasons[kind].most_common()}
            for kind in KINDS
        }  # fmt: skip
        findings = [
            {"verdict": verdict, "kind": kind, "reason": reason, "count": len(found), "changes": sorted({c for _, c in found})[:10], "numbers": [n for n, _ in found[:20]]}
            for (verdict, kind, reason), found in self.findings.items()
        ]  # fmt: skip
        total = sum(self.counts.values(), Counter[str]())
        return {"total": {**total, "mutations": sum(total[v] for v in VERDICTS)}, "kinds": kinds, "findings": findings}


COLUMNS = (
    "mutations",
    "known ✗",
    "rejected",
    "accepted",
    "elsewhere",
    "FALSE",
    "crashes",
    "slow",
    "memory",
    "most s",
    "most MiB",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="mutations")
    parser.add_argument("--first", type=int, default=0, help="number of the first one; each number is one mutation")
    parser.add_argument("--seed", type=int, default=0, help="of the networks and of the changes")
    parser.add_argument(
        "--networks", default="", help="only networks whose name contains one of these, like: pool,dense"
    )
    parser.add_argument("--each", type=int, default=2, help="certificates for each network")
    parser.add_argument("--only", default="", help="only kinds of changes whose name contains this")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--out", type=Path, help="file for the figures as JSON")
    parser.add_argument("--keep", type=Path, help="folder for files that were found")
    parser.add_argument("--plant", choices=PLANTS, help="a bug for the checker, to see that it is found")
    options = parser.parse_args()
    begun = time.monotonic()
    names = [name for name in MODELS if any(part in name for part in options.networks.split(","))]
    cases = make_cases(names, options.each, options.seed)
    describe(cases, time.monotonic() - begun)
    table = run(cases, options, begun)
    seconds = time.monotonic() - begun
    print(f"\n{table.text()}\n\n{table.listed()}\n\n{options.count:,} mutations in {seconds:,.0f} s; ", end="")
    print(f"{table.failures:,} false or crashed or over {SECONDS:.0f} s or {BYTES >> 30} GiB", flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        about = {
            "count": options.count,
            "first": options.first,
            "seed": options.seed,
            "plant": options.plant,
            "seconds": seconds,
        }
        networks = [{"network": c.name, "leaves": c.leaves, "mutations": table.cases[c.name]} for c in cases]
        options.out.write_text(json.dumps({**about, **table.as_dict(), "cases": networks}, indent=1) + "\n")
    sys.exit(table.failures > 0)


def describe(cases: list[Case], seconds: float) -> None:
    """What is changed."""
    networks = len({case.name for case in cases})
    leaves = sum(case.leaves for case in cases)
    print(
        f"{len(cases)} certificates about {networks} networks, {leaves:,} leaves, made in {seconds:.0f} s", flush=True
    )


def run(cases: list[Case], options: argparse.Namespace, begun: float) -> Table:
    """All mutations, by several processes."""
    table, shown = Table(), time.monotonic()
    numbers = range(options.first, options.first + options.count)
    quick = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # in memory
    with tempfile.TemporaryDirectory(prefix="lingraft-tampering-", dir=quick) as folder:
        crew = Crew(cases, options.seed, Path(folder), options.only, options.plant)
        for done, (number, outcome) in enumerate(crew.outcomes(numbers, options.workers), start=1):
            table.add(number, outcome)
            if options.keep and (outcome.bad or outcome.verdict == "refused elsewhere"):
                keep(options.keep, number, outcome, table)
            if outcome.bad:
                print(
                    f"{number}: {outcome.verdict}: {outcome.kind}, {outcome.change}, {outcome.case}: {outcome.reason} {outcome.detail}",
                    flush=True,
                )
            if time.monotonic() - shown > 20 or done == options.count:
                shown = time.monotonic()
                rate = done / (shown - begun)
                print(
                    f"{done:,} of {options.count:,}, {rate:.0f} a second, {table.failures} failures",
                    file=sys.stderr,
                    flush=True,
                )
    return table


def keep(folder: Path, number: int, outcome: Outcome, table: Table) -> None:
    """The files of a finding, of the first few of its kind."""
    if len(table.findings[outcome.verdict, outcome.kind, outcome.reason]) > 3:
        return
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{outcome.verdict.split()[0]}-{number}"
    (folder / f"{name}.onnx").write_bytes(outcome.onnx)
    (folder / f"{name}.cert").write_bytes(outcome.certificate)
    (folder / f"{name}.txt").write_text(
        f"{outcome.kind}: {outcome.change} ({outcome.case})\n{outcome.reason}\n{outcome.detail}\n"
    )


if __name__ == "__main__":
    main()
