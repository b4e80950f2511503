"""The fault campaign: `python tests/faults/campaign.py`, or `make faults`.

Tells a short story on handwritten digits (train, evaluate, score, select, graft, verify, report), first undisturbed and
then with faults: processes killed, disks full or read-only, files damaged, clocks jumping, two processes in one folder,
memory running out. After each fault no half-written file may be there under its own name, nothing that was finished may
be lost, and the same command has to go on, say what it found, and end with what the undisturbed story ended with:
weights equal to the bit, verdicts equal. Exit code 1 if it does not.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # forks of a process that has started threads would hang

import faults
from processes import preload
from story import SMALL, tell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3, help="how often each fault is done to each command")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and places of the faults")
    parser.add_argument("--only", default="", help="only faults whose name contains one of these, like: kill,disk")
    parser.add_argument("--story", default=",".join(SMALL), help="the commands, in this order; some need others before")
    parser.add_argument("--out", type=Path, help="file for the table as JSON")
    options = parser.parse_args()
    begun = time.monotonic()
    preload()
    folder = Path(tempfile.mkdtemp(prefix="lingraft-faults-"))
    try:
        campaign = faults.Campaign(
            tell(folder / "story", {name: SMALL[name] for name in options.story.split(",")}),
            folder,
            random.Random(options.seed),
            options.times,
            _print,
        )
        print(f"{'fault':<38}{'command':<26}{'injected':>9}{'survived':>9}{'lost':>6}", flush=True)
        run(campaign, options.only.split(","), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    totals = [sum(getattr(t, name) for t in campaign.tallies) for name in ("injected", "survived")]
    print(f"{'all':<64}{totals[0]:>9}{totals[1]:>9}{totals[0] - totals[1]:>6}   {time.monotonic() - begun:.0f} s")
    if options.out:
        options.out.write_text(json.dumps([vars(tally) for tally in campaign.tallies], indent=2) + "\n")
    sys.exit(totals[0] != totals[1])


def run(campaign: faults.Campaign, only: list[str], folder: Path) -> None:
    """All faults whose name contains one of `only`."""

    def wanted(fault: str) -> bool:
        return any(text in fault for text in only)

    steps = list(campaign.steps.values())
    kept = [step for step in steps if step.name != "reproduce"]  # it is made of the others
    lasting = [step for step in kept if step.name in ("train", "graft", "verify", "report")]
    for fault, do, affected in (
        ("kill -9 at a file operation", faults.kill_at_operations, steps),
        (
            "kill -9 at a random moment",
            faults.kill_at_times,
            [step for step in steps if step in lasting or step not in kept],
        ),
        ("kill -9 of a worker", faults.stop_workers, [step for step in steps if step.name == "verify"]),
        ("allocations fail", faults.run_out_of_memory, lasting),
        ("two processes on one folder", faults.two_at_once, [step for step in kept if step.name != "report"]),
    ):
        if wanted(fault):
            for step in affected:
                do(campaign, step)
    for fault, on_disk in (("disk full", faults.fill_disk), ("read-only folder", faults.forbid_writing)):
        if not wanted(fault):
            continue
        try:
            disk = faults.SmallDisk(folder / f"disk-{fault.split()[0]}")
        except OSError as error:
            campaign.skip(fault, f"no file system of our own can be mounted here ({error})")
            continue
        try:
            for step in lasting:
                on_disk(campaign, step, disk)
        finally:
            disk.close()
    if wanted("file cut short or a bit flipped"):
        faults.damage_files(campaign, folder / "story" / "state")
    if wanted("clock jumps"):
        try:
            shim = faults.make_shim(folder)
        except OSError as error:
            campaign.skip("clock jumps", f"no library can be put before the system's clock here ({error})")
        else:
            for step in lasting:
                faults.jump_in_time(campaign, step, shim)


def _print(tally: faults.Tally) -> None:
    if tally.skipped:
        print(f"{tally.fault:<38}skipped: {tally.skipped}", flush=True)
        return
    lost = tally.injected - tally.survived
    print(f"{tally.fault:<38}{tally.command:<26}{tally.injected:>9}{tally.survived:>9}{lost:>6}", flush=True)
    for problem in tally.problems:
        print(f"    {problem}", flush=True)


if __name__ == "__main__":
    main()
