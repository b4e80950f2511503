"""Windows and macOS: nothing that verification needs is of one system alone."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import lingraft
from lingraft.pool import images, opening, processes
from lingraft.pool.place import Place

#: Imports every module of lingraft as if the system had no such modules and functions, then verifies an image.
SCRIPT = """
import builtins, importlib, os, pkgutil, signal
import sklearn.datasets, torch  # others have their own ways around what is missing

POSIX = {"resource", "fcntl", "pwd", "grp", "termios", "tty", "pty", "posix", "syslog"}
genuine = builtins.__import__

def guarded(name, globals=None, *rest, **named):
    if name.partition(".")[0] in POSIX and str((globals or {}).get("__name__")).startswith("lingraft"):
        raise ModuleNotFoundError(name)
    return genuine(name, globals, *rest, **named)

builtins.__import__ = guarded
for missing in ("sched_getaffinity", "sysconf", "killpg", "nice", "fork", "getuid"):
    delattr(os, missing)
del signal.SIGKILL
import lingraft
names = [module.name for module in pkgutil.walk_packages(lingraft.__path__, "lingraft.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()
image = torch.full((1, 3), 0.5)
(result,) = lingraft.verify(model, image, model(image).argmax(1), eps=0.001, workers=0)
print(len(names), result.verdict)
"""


@pytest.mark.slow
def test_every_module_is_imported_and_an_image_verified_without_what_only_posix_has():
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    count, verdict = ended.stdout.split()
    assert int(count) > 200
    assert verdict == "verified"


def test_without_worker_processes_work_is_done_in_this_one(monkeypatch):
    for module in (images, opening, processes):
        monkeypatch.setattr(module, "POSSIBLE", False)
    assert images.processes(None, 10, torch.device("cpu")) == 0
    model = nn.Sequential(nn.Linear(3, 2)).eval()
    points = torch.rand(2, 3)
    labels = model(points).argmax(1)
    assert [r.verdict for r in lingraft.verify(model, points, labels, eps=0.0, timeout=60)] == ["verified"] * 2
    with pytest.raises(lingraft.LingraftError, match="workers=0"):
        lingraft.verify(model, points, labels, eps=0.0, workers=2)
    assert Place(2).workers == 2
