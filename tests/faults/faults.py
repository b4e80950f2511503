"""Faults, each done to commands of the story in a folder of its own, with all that has to hold afterwards."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from contents import broken, content, difference, files, finished, lost
from processes import Command, Outcome, kill_at, run
from story import Step

from lingraft.process_memory import limit_memory


@dataclass
class Tally:
    """How one kind of fault went with one command; `skipped` says why it was not done at all."""

    fault: str
    command: str
    injected: int = 0
    survived: int = 0
    problems: list[str] = field(default_factory=list)
    skipped: str = ""


@dataclass
class Campaign:
    """The story, a place for copies of it, and chance."""

    steps: dict[str, Step]
    folder: Path
    chance: random.Random
    #: how often each fault is done to each command
    times: int
    report: Callable[[Tally], None]
    tallies: list[Tally] = field(default_factory=list)

    @contextmanager
    def place(self, step: Step, inside: Path | None = None) -> Iterator[Path]:
        """A copy of the folder before a step, removed afterwards."""
        place = Path(tempfile.mkdtemp(prefix=f"{step.name}-", dir=inside or self.folder))
        try:
            yield step.begin(place)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    @contextmanager
    def tally(self, fault: str, command: str) -> Iterator[Tally]:
        """Counts one kind of fault, and reports it at the end."""
        tally = Tally(fault, command)
        yield tally
        self.tallies.append(tally)
        self.report(tally)

    def skip(self, fault: str, why: str) -> None:
        """A fault that cannot be done on this machine."""
        with self.tally(fault, "") as tally:
            tally.skipped = why

    # What has to hold

    def recovers(
        self, tally: Tally, step: Step, place: Path, outcome: Outcome, expects: str = "", faults: int = 1
    ) -> None:
        """After a fault: no half-written file, nothing done is lost, the same command ends as if undisturbed."""
        problems = [outcome.problem()] if not outcome.killed else []
        problems += [f"half-written: {what}" for what in broken(place)]
        if expects and outcome.code and expects not in outcome.errors:
            problems.append(f"{outcome.command}: does not say {expects!r}: {outcome.errors[-300:]}")
        before = finished(place)
        locked = [path.parent for path in place.rglob(".lock")]
        second = step.again(place)
        problems.append(second.problem())
        if second.code:
            problems.append(f"{second.command}: does not go on: {second.errors[-300:]}")
        elif any("did not end well" not in second.errors for _ in locked):
            problems.append(f"{second.command}: does not say that the process before it was killed")
        problems += [f"lost: {what}" for what in lost(before, place)]
        problems.append(difference(step.expected, place))
        problems += [f"left behind: {path.name}" for path in place.rglob(".*.part")]
        self.count(tally, problems, faults)

    @staticmethod
    def count(tally: Tally, problems: list[str | None], faults: int = 1) -> None:
        """More faults, survived if there are no problems."""
        found = [problem for problem in problems if problem]
        tally.injected += faults
        tally.survived += 0 if found else faults
        tally.problems += found


def kill_at_operations(campaign: Campaign, step: Step) -> None:
    """kill -9 just before a file operation; files being put in place are left cut in half."""
    points = range(1, step.operations + 1)
    with campaign.tally("kill -9 at a file operation", step.name) as tally:
        for point in sorted(campaign.chance.sample(points, min(campaign.times, len(points)))):
            with campaign.place(step) as place:
                outcome = run(step.arguments, place, kill_at(place, point))
                campaign.recovers(tally, step, place, outcome)


def kill_at_times(campaign: Campaign, step: Step) -> None:
    """kill -9 at random moments, up to three times in a row."""
    with campaign.tally("kill -9 at a random moment", step.name) as tally:
        for _ in range(3 * campaign.times):
            with campaign.place(step) as place:
                kills = 0
                for _ in range(campaign.chance.randint(1, 3)):
                    command = Command(step.arguments, place)
                    time.sleep(campaign.chance.uniform(0, step.seconds))
                    command.kill()
                    outcome = command.wait()
                    kills += outcome.killed
                if kills:
                    campaign.recovers(tally, step, place, outcome, faults=kills)
            if tally.injected >= campaign.times:
                break


def stop_workers(campaign: Campaign, step: Step) -> None:
    """kill -9 of a worker process in the middle, as the kernel does when memory runs out."""
    with campaign.tally("kill -9 of a worker (out of memory)", step.name) as tally:
        for _ in range(max(2, campaign.times // 2)):
            with campaign.place(step) as place:
                command = Command([*step.arguments, "--workers", "2"], place)
                _child(command)
                time.sleep(campaign.chance.uniform(0, 2 * step.seconds))
                worker = _child(command)
                if worker:
                    os.kill(worker, signal.SIGKILL)
                outcome = command.wait()
                if outcome.code:
                    tally.problems.append(f"a killed worker ends the command: {outcome.errors[-300:]}")
                if worker:
                    campaign.recovers(tally, step, place, outcome)


def _child(command: Command) -> int | None:
    """A process that a command has started; waits for the first one while the command runs."""
    children = Path(f"/proc/{command.pid}/task/{command.pid}/children")
    while not command.is_over():
        found = children.read_text().split()
        if found:
            return int(found[-1])
        time.sleep(0.01)
    return None


def run_out_of_memory(campaign: Campaign, step: Step) -> None:
    """Allocations that fail from a random size on."""
    with campaign.tally("allocations fail", step.name) as tally:
        for _ in range(campaign.times):
            more = campaign.chance.uniform(0, 40) * 1024**2
            with campaign.place(step) as place:
                outcome = run(step.arguments, place, partial(limit_memory, more))
                if outcome.code in (-signal.SIGABRT, -signal.SIGSEGV):  # libraries that do not look
                    outcome.code = -signal.SIGKILL
                campaign.recovers(tally, step, place, outcome)


def two_at_once(campaign: Campaign, step: Step) -> None:
    """The same command twice at the same time: one is told so, the other one ends well."""
    with campaign.tally("two processes on one folder", step.name) as tally:
        for _ in range(max(1, campaign.times // 4)):
            with campaign.place(step) as place:
                both = [Command(step.arguments, place) for _ in range(2)]
                outcomes = [command.wait() for command in both]
                problems = [outcome.problem() for outcome in outcomes]
                refused = [outcome for outcome in outcomes if outcome.code]
                if len(refused) > 1:
                    problems.append("both ended")
                problems += [f"says {o.errors!r}" for o in refused if "is in use by process" not in o.errors]
                problems += [f"half-written: {what}" for what in broken(place)]
                problems.append(difference(step.expected, place))
                campaign.count(tally, problems)


class SmallDisk:
    """A file system of a size, and with permissions, that can be changed."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        self._mount("-t", "tmpfs", "-o", "size=256m", "tmpfs")

    def _mount(self, *options: str) -> None:
        done = subprocess.run(["mount", *options, str(self.folder)], capture_output=True, text=True)
        if done.returncode:
            raise OSError(done.stderr.strip())

    def used(self) -> int:
        """Bytes."""
        state = os.statvfs(self.folder)
        return (state.f_blocks - state.f_bfree) * state.f_frsize

    def resize(self, size: int) -> None:
        """To so many bytes."""
        self._mount("-o", f"remount,size={size}")

    def permit(self, what: str) -> bool:
        """`rw` or `ro`; False if a file is being written."""
        try:
            self._mount("-o", f"remount,{what}")
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Unmount."""
        subprocess.run(["umount", str(self.folder)], check=True)


LARGE = 256 * 1024**2


def fill_disk(campaign: Campaign, step: Step, disk: SmallDisk) -> None:
    """A disk that has room for a random part of what a command writes."""
    with campaign.tally("disk full", step.name) as tally:
        with campaign.place(step, disk.folder) as place:
            before = disk.used()
            step.again(place)
            needed = disk.used() - before
        while tally.injected < campaign.times:
            with campaign.place(step, disk.folder) as place:
                disk.resize(disk.used() + int(campaign.chance.uniform(0, 1) * needed))
                outcome = step.again(place)
                disk.resize(LARGE)
                campaign.recovers(tally, step, place, outcome, expects="No space left on device")


def forbid_writing(campaign: Campaign, step: Step, disk: SmallDisk) -> None:
    """A disk that is read-only from the start or becomes so on the way."""
    with campaign.tally("read-only folder", step.name) as tally:
        for number in range(campaign.times):
            with campaign.place(step, disk.folder) as place:
                if not number:
                    disk.permit("ro")
                command = Command(step.arguments, place)
                time.sleep(campaign.chance.uniform(0, step.seconds))
                while number and not command.is_over() and not disk.permit("ro"):
                    time.sleep(0.002)
                outcome = command.wait()
                disk.permit("rw")
                campaign.recovers(tally, step, place, outcome, expects="Read-only file system")


SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <sys/time.h>
/* Every look at the wall clock finds it a day ahead or behind, in turns. */
static long jump(void) { static long looks; return looks++ % 2 ? 86400 : -86400; }
int clock_gettime(clockid_t id, struct timespec *t) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int failed = real(id, t);
  if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) t->tv_sec += jump();
  return failed;
}
time_t time(time_t *t) {
  struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
  if (t) *t = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(struct timeval *t, void *zone) {
  struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
  t->tv_sec = now.tv_sec; t->tv_usec = now.tv_nsec / 1000;
  return 0;
}
"""


def make_shim(folder: Path) -> Path:
    """A library that makes the clock jump; an OSError where there is no compiler."""
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(SHIM)
    done = subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], capture_output=True)
    if done.returncode:
        raise OSError("the compiler fails")
    seen = subprocess.run(
        [sys.executable, "-c", "import time; print(abs(time.time() - time.time()) > 80000)"],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
    )
    if seen.stdout.strip() != "True":
        raise OSError("a preloaded library has no effect on the clock here")
    return library


def jump_in_time(campaign: Campaign, step: Step, shim: Path) -> None:
    """A wall clock that jumps by days, forth and back."""
    with campaign.tally("clock jumps", step.name) as tally, campaign.place(step) as place:
        done = subprocess.run(
            [sys.executable, "-m", "lingraft", *step.arguments],
            cwd=place,
            env={**os.environ, "LD_PRELOAD": str(shim)},
            capture_output=True,
            text=True,
        )
        outcome = Outcome(" ".join(step.arguments), done.returncode, done.stdout, done.stderr, 0.0)
        problems = [outcome.problem(), done.stderr if done.returncode else None, difference(step.expected, place)]
        campaign.count(tally, problems)


#: What reads a file of a run, by how its name ends.
READERS = {
    "run/model.json": "train evaluate select graft verify report",
    "run/model.safetensors": "train evaluate select graft verify report",
    "run/checkpoint.safetensors": "train",
    "run/history.jsonl": "train report",
    "run/summary.json": "train evaluate verify report",
    "run/scores.npz": "select report",
    "run/mask.safetensors": "select",
    "run/verdicts.jsonl": "verify report",
    "run/commands.jsonl": "evaluate report",
    ".cert": "verify",
    "model.onnx": "verify",
    "witnesses/": "verify report",
    "grafted/model.json": "graft report",
    "grafted/model.safetensors": "graft report",
    "grafted/checkpoint.safetensors": "graft",
    "grafted/scores.npz": "graft report",
    "grafted/summary.json": "graft report",
    "figures/": "train report",
}


def damage_files(campaign: Campaign, state: Path) -> None:
    """Files of a finished folder cut short, emptied, or with a bit flipped.

    Every command that reads the file either says that it is damaged or makes it again. When it is restored, everything
    goes on; whatever happens, the results are those of the undisturbed story.
    """
    expected = content(state)
    kinds: dict[str, list[Path]] = {}
    for path in files(state):
        kind = next((kind for kind in READERS if kind in str(path)), None)
        if kind is not None:
            kinds.setdefault(kind, []).append(path)
    for kind, paths in kinds.items():
        with campaign.tally("file cut short or a bit flipped", kind.rpartition("run/")[2]) as tally:
            for number in range(campaign.times):
                path = campaign.chance.choice(paths)
                damaged = _damaged(path.read_bytes(), number, campaign.chance)
                place = Path(tempfile.mkdtemp(prefix="damage-", dir=campaign.folder))
                try:
                    shutil.copytree(state, place, dirs_exist_ok=True)
                    campaign.count(
                        tally, _with_damage(campaign, kind, place, path.relative_to(state), damaged, expected)
                    )
                finally:
                    shutil.rmtree(place)


def _damaged(content: bytes, number: int, chance: random.Random) -> bytes:
    if number % 3 == 0:
        place = chance.randrange(8 * len(content))
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        return bytes(changed)
    return content[: chance.randrange(len(content))] if number % 3 == 1 else b""


def _with_damage(
    campaign: Campaign, kind: str, place: Path, name: Path, damaged: bytes, expected: dict[str, object]
) -> list[str | None]:
    whole = (place / name).read_bytes()
    (place / name).write_bytes(damaged)
    problems: list[str | None] = []
    failed = []
    for command in (name for name in READERS[kind].split() if name in campaign.steps):
        outcome = campaign.steps[command].again(place)
        problems.append(outcome.problem())
        if outcome.code:
            failed.append(command)
            if name.name not in outcome.errors:
                problems.append(f"{outcome.command} fails and does not name {name}: {outcome.errors[-300:]}")
    if failed:
        (place / name).write_bytes(whole)
        for command in failed:
            outcome = campaign.steps[command].again(place)
            if outcome.code:
                problems.append(f"{name} is restored, but {outcome.command} fails: {outcome.errors[-300:]}")
    problems.append(difference(expected, place))
    return [problem and f"{name} ({len(damaged)} of {len(whole)} bytes): {problem}" for problem in problems]
