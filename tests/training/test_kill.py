"""Killed with SIGKILL at every file operation of a save, and at random moments, a run ends as if it had not been."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

# A process of its own forks the trainings that get killed: torch is imported once, and has done nothing before a fork.
SUPERVISOR = '''
import json, os, random, signal, sys, time
from pathlib import Path

import torch
import torch._dynamo  # the optimizer would, after every fork again
from lingraft.model import zoo
from lingraft.data import load
from lingraft.runs import ModelDescription, Run
from lingraft.training import Destination, TrainingConfig, TrainingData, train_network

folder = Path(sys.argv[1])
torch.set_num_threads(1)
images, validation = load("digits", "train").take(96), load("digits", "validation").take(24)
config = TrainingConfig(0.05, epochs=3, batch=32, lr=0.05, validation_steps=1, schedule="one-cycle")
description = ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10, data="digits", eps=0.05)


def work(run):
    torch.manual_seed(0)
    model = zoo.build("digits-cnn")
    data = TrainingData(images, validation, augment=True)
    train_network(model, data, config, Destination(Run(run), description), on_epoch=())


def die_at(run, point):
    """Kill this process just before its file operation number `point` in the run; a file about to be put in place
    is cut in half before, as if the kill had come while it was written."""
    seen = 0

    def hook(event, args):
        nonlocal seen
        if event in ("open", "os.rename", "os.remove", "os.truncate") and str(args[0]).startswith(str(run)):
            seen += 1
            if seen == point:
                if event == "os.rename":
                    os.truncate(args[0], os.path.getsize(args[0]) // 2)
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def child(run, point=None):
    pid = os.fork()
    if pid:
        return pid
    try:
        if point is not None:
            die_at(run, point)
        work(run)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def status(pid):
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, -signal.SIGKILL):
        sys.exit(f"training failed: {code}")
    return code


whole = folder / "whole"
begun = time.monotonic()
assert status(child(whole)) == 0
seconds = time.monotonic() - begun

kills = {}
for point in range(1, 200):  # one more operation survived each time, until the training survives as a whole
    run = folder / f"point-{point}"
    if status(child(run, point)) == 0:
        break
    kills[run.name] = 1
    assert status(child(run)) == 0

random.seed(0)
for number in range(4):
    run = folder / f"random-{number}"
    for kill in range(8):
        pid = child(run)
        time.sleep(random.uniform(0, (0.8 if kill else 0.1) * seconds))  # the first kill comes in time on any machine
        os.kill(pid, signal.SIGKILL)
        if status(pid) == 0:
            break
        kills[run.name] = kill + 1
    assert status(child(run)) == 0
print(json.dumps(kills))
'''


def content(run: Path) -> dict[str, Any]:
    records = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    for record in records:
        del record["seconds"], record["crc32"]
    weights = {name: load_file(run / f"{name}.safetensors") for name in ("checkpoint", "model")}
    return {"history": records, "weights": weights, "files": sorted(path.name for path in run.iterdir())}


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork and SIGKILL")
def test_killed_runs_end_with_the_same_weights(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    kills = json.loads(done.stdout)
    assert sum(name.startswith("point") for name in kills) > 20
    assert sum(count for name, count in kills.items() if name.startswith("random")) >= 2
    expected = content(tmp_path / "whole")
    assert len(expected["history"]) == 3
    for name in kills:
        found = content(tmp_path / name)
        assert found["history"] == expected["history"], name
        assert found["files"] == expected["files"], name
        for file, tensors in expected["weights"].items():
            assert found["weights"][file].keys() == tensors.keys()
            for key, tensor in tensors.items():
                assert torch.equal(found["weights"][file][key], tensor), (name, file, key)
