"""CROWN bounds of all sites of the paper's networks: CPU-seconds, memory, and how much of that is arithmetic.

Weights are torch's random ones, a share of the neurons is grafted at random. One thread, each case in a process of its
own; the best of some runs. The limit is what the dense products of the run would take at the rate of a large product in
float64, measured beside it. auto_LiRPA's time is that of CROWN for all layers, where it is installed and there are no
grafted neurons, which it does not know.

    python benchmarks/bounds.py [CASE …] [--runs N] [--json FILE]
"""

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import lingraft
from lingraft.model.zoo import MODELS, build
from lingraft.process_memory import peak_memory
from lingraft.solver.bounds import bound_sites
from lingraft.solver.budget import Budget
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.rounding import Sizes

#: Name → network, share of grafted neurons, ε.
CASES = {
    "cnn-b": ("cnn-b", 0.0, 2 / 255),
    "resnet-4b": ("resnet-4b", 0.0, 2 / 255),
    "conv-big": ("conv-big", 0.0, 2 / 255),
    "conv-big-graft50": ("conv-big", 0.5, 2 / 255),
    "conv-huge-graft80": ("conv-huge", 0.8, 0.001),
}


def seconds(work: Callable[[], Any], runs: int) -> float:
    """The fewest CPU-seconds of some runs."""
    each = []
    for _ in range(runs):
        begun = time.process_time()
        work()
        each.append(time.process_time() - begun)
    return min(each)


def problem(case: str) -> tuple[nn.Module, Tensor, float]:
    """The network, an image and ε."""
    name, share, eps = CASES[case]
    shape = MODELS[name].input_shape
    torch.manual_seed(0)
    model: nn.Module = build(name).eval()
    image = torch.rand(shape)
    if share:
        mask = {site.name: torch.rand(site.shape) < share for site in lingraft.sites(model, shape)}
        model = lingraft.graft(model, mask, input_shape=shape).eval()
    return model, image, eps


def measure(case: str, runs: int) -> dict[str, Any]:
    """One case, in this process."""
    model, image, eps = problem(case)
    network = Network.from_module(model, image.shape)
    region, sizes = Region.ball(image, eps), Sizes(network)
    before = peak_memory()
    result: dict[str, Any] = {"case": case}
    result["cpu_seconds"] = seconds(lambda: bound_sites(network, region, Budget(), sizes=sizes), runs)
    result["memory"], result["memory_before"] = peak_memory(), before
    with FlopCounterMode(display=False) as counter:
        found = bound_sites(network, region, Budget(), sizes=sizes)
    result["unstable"] = [int(found.unstable(network, i).sum()) for i in network.sites]
    result["gflop"] = counter.get_total_flops() / 1e9
    square = torch.rand(2000, 2000, dtype=torch.float64)
    result["gflop_per_second"] = 2 * 2000**3 / 1e9 / seconds(lambda: square @ square, 5)
    result["limit"] = result["gflop"] / result["gflop_per_second"]
    result["auto_lirpa"] = None if CASES[case][1] else auto_lirpa(model, image, eps, runs)
    return result


def auto_lirpa(model: nn.Module, image: Tensor, eps: float, runs: int) -> float | None:
    """CPU-seconds of the other library, if it is there."""
    if importlib.util.find_spec("auto_LiRPA") is None:
        return None
    other = importlib.import_module("auto_LiRPA")  # not a dependency of ours
    bounded = other.BoundedModule(model, image[None])
    ball = other.BoundedTensor(image[None], other.PerturbationLpNorm(norm=float("inf"), eps=eps))
    return seconds(lambda: bounded.compute_bounds(x=(ball,), method="CROWN"), runs)


def show(results: list[dict[str, Any]]) -> None:
    """One line for each case."""
    table = Table("case", "unstable", "CPU-s", "GFLOP", "limit, s", "share", "peak MiB", "auto_LiRPA, s")
    for column in table.columns[1:]:
        column.justify = "right"
    for r in results:
        other = "–" if r["auto_lirpa"] is None else f"{r['auto_lirpa']:.2f}"
        share = f"{r['limit'] / r['cpu_seconds']:.0%}"
        numbers = (
            f"{r['cpu_seconds']:.2f}",
            f"{r['gflop']:.1f}",
            f"{r['limit']:.2f}",
            share,
            f"{r['memory']:.0f}",
            other,
        )
        table.add_row(r["case"], f"{sum(r['unstable']):,}", *numbers)
    Console(width=110).print(table)
    rate = max(r["gflop_per_second"] for r in results)
    print(f"A large product in float64 runs at {rate:.0f} GFLOP/s here.")
    if importlib.util.find_spec("auto_LiRPA") is None:
        print("auto_LiRPA is not installed, so its times are left out.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--runs", type=int, default=3, help="the best of so many counts (default: 3)")
    parser.add_argument("--json", type=Path, help="write everything to this file as well")
    parser.add_argument("--here", action="store_true", help="in this process, the first case only, as JSON")
    options = parser.parse_args()
    if not set(options.cases) <= set(CASES):
        parser.error(f"cases are {', '.join(CASES)}")
    torch.set_num_threads(1)
    if options.here:
        print(json.dumps(measure(options.cases[0], options.runs)))
        return
    results = []
    for case in options.cases or CASES:
        command = [sys.executable, __file__, case, "--here", "--runs", str(options.runs)]
        given = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        results.append(json.loads(given.splitlines()[-1]))
    show(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
