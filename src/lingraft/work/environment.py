"""What lingraft finds on this machine: versions, processor, memory, GPUs, data, and what is missing for what."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch

from lingraft.data import data_root, inventory
from lingraft.solver.budget import GIB, free_memory, usable_cores
from lingraft.work.vnncomp.other_verifiers import TOOLS


@dataclass(frozen=True)
class Feature:
    """Something that not every installation can do."""

    name: str
    available: bool
    #: where it is, or how to get it
    note: str


def package_versions() -> dict[str, str | None]:
    """Python, lingraft and every package that it requires, by name; None for one that is not installed."""
    required = importlib.metadata.requires("lingraft") or []
    names = [re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in required if "extra ==" not in line]
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in ("lingraft", *names):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def machine() -> dict[str, Any]:
    """System, cores, threads, memory and free disk space (GiB), GPUs that PyTorch can use."""
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "torch_threads": torch.get_num_threads(),
        "free_memory_gib": round(free_memory() / GIB, 1),
        "free_disk_gib": round(shutil.disk_usage(os.curdir).free / GIB, 1),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def features() -> list[Feature]:
    """What depends on the machine or on packages that lingraft does not require."""
    gpu = torch.cuda.is_available()
    posix, linux = os.name == "posix", sys.platform == "linux"
    listed = [
        Feature("GPU", gpu, "CUDA" if gpu else "PyTorch sees no GPU; everything works on the CPU"),
        Feature("several processes", posix, "lingraft verify --workers" if posix else "needs Linux or macOS"),
        Feature("hard memory limit", linux, "lingraft verify --memory" if linux else "needs Linux; else by estimate"),
        _package("cluster", "ray", "ray"),
        _package("evaluate --attack autoattack", "torchattacks", "autoattack"),
        _package("documentation", "mkdocs", "docs"),
        _package("tests", "pytest", "dev"),
    ]
    for tool in TOOLS.values():
        command = tool.locate()
        note = f"not found; {tool.install}" if command is None else " ".join(command)
        listed.append(Feature(f"compare --against {tool.name}", command is not None, note))
    return listed


def _package(name: str, module: str, extra: str) -> Feature:
    there = importlib.util.find_spec(module) is not None
    note = f"{module} is installed" if there else f"{module} is missing: pip install 'lingraft[{extra}]'"
    return Feature(name, there, note)


def data_found() -> dict[str, Any]:
    """The data folder and the state of every data set in it; the files are read, not only looked for."""
    return {"folder": str(data_root()), "states": {holding.name: holding.state for holding in inventory()}}


def doctor() -> dict[str, Any]:
    """What is here and what is missing: versions, machine, features, data. JSON-able."""
    return {
        "versions": package_versions(),
        "machine": machine(),
        "features": [asdict(feature) for feature in features()],
        "data": data_found(),
    }
