"""Which measure of instability gives the best VA for the SA: the paper's count, or harm? On digits, several seeds.

    python benchmarks/harm.py --out results/harm

trains a network for each seed, grafts it by every measure at every ratio, fine-tunes, and measures SA on all test
images, RA and VA on the first ones. Every setting is one line of digits.jsonl; what is there is not done again.
digits.md is the table of all lines. Networks are kept in `--runs`.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean

import torch

from lingraft.attack.evaluation import Attack, evaluate
from lingraft.data import load
from lingraft.device import limited_threads
from lingraft.files import append_line, read_lines
from lingraft.grafting import (
    GAMMAS,
    INSTABILITIES,
    FineTuning,
    GraftingConfig,
    Scores,
    choose,
    fine_tuning_defaults,
    graft_network,
    score,
)
from lingraft.model.surgery import masks
from lingraft.runs import Run
from lingraft.runs import load as load_run
from lingraft.runs.summary import summarize
from lingraft.training import Destination, TrainingData
from lingraft.work.demo import train_network
from lingraft.work.verify import verify

CPU, EPS = torch.device("cpu"), 0.05
STAGES = {"stages": GAMMAS, "inf": (float("inf"),)}


@limited_threads(1)
def measure(given: argparse.Namespace, path: Path) -> None:
    """Append what is missing."""
    done = {(r["seed"], r["ratio"], r["gamma"], r["instability"]) for r in read_lines(path)}
    settings = [
        (seed, ratio, gamma, instability)
        for seed in given.seeds
        for ratio in given.ratios
        for gamma in given.gammas
        for instability in INSTABILITIES
    ]
    for setting in settings:
        if setting not in done:
            append_line(path, figures_of(*setting, given))
            print(path.read_text(encoding="utf-8").splitlines()[-1], flush=True)


def figures_of(seed: int, ratio: float, gamma: str, instability: str, given: argparse.Namespace) -> dict[str, object]:
    """Graft, fine-tune and measure one network."""
    parent = Run(given.runs / f"digits-{seed}")
    if not parent.weights_path.exists():
        train_network(parent, EPS, seed, CPU)
    model = load_run(parent)
    train, validation, test = (load("digits", split) for split in ("train", "validation", "test"))
    config = GraftingConfig(EPS, ratio=ratio, gammas=STAGES[gamma], instability=instability, bound_images=50, seed=seed)
    scores = parent.path / f"scores-{instability}.npz"
    if not scores.exists():
        score(model, train, config).save(scores)
    tuning = FineTuning(fine_tuning_defaults(EPS, epochs=8, batch=64, lr=0.005, seed=seed), line_lr=0.05)
    destination = Destination(
        Run(parent.path / f"{instability}-{gamma}-{round(100 * ratio)}"),
        parent.describe().model_copy(update={"parent": str(parent.path)}),
        restart=True,
    )
    mask = choose(Scores.load(scores), config)
    data = TrainingData(train, validation)
    grafted, _ = graft_network(model, data, config, tuning, destination, mask=mask, on_epoch=())
    few = test.take(given.images)
    accuracy = evaluate(grafted, test, Attack(EPS, steps=20, restarts=2), images=given.images)
    results = verify(grafted, few.pixels(), few.labels, eps=EPS, timeout=given.timeout, workers=0)
    proven = summarize(results, given.timeout)
    return {
        "seed": seed,
        "ratio": ratio,
        "gamma": gamma,
        "instability": instability,
        "sa": accuracy.sa,
        "ra": accuracy.ra,
        "va": proven.va,
        "va_at_the_root": sum(r.verdict == "verified" and r.stage != "branch" for r in results) / given.images,
        "undecided": proven.unknown_share,
        "unr": proven.unr,
        "images": given.images,
        "timeout": given.timeout,
        "sites": [round(float(m.double().mean()), 3) for m in masks(grafted).values()],
    }


def table(path: Path) -> str:
    """Means over the seeds, in percent, as Markdown."""
    groups: dict[tuple[str, float, str], list[dict[str, float]]] = {}
    for record in read_lines(path):
        groups.setdefault((record["gamma"], record["ratio"], record["instability"]), []).append(record)
    lines = [
        "| γ | ratio | instability | SA | RA | VA | at the root | undecided | UNR | grafted, site by site | seeds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    order = list(INSTABILITIES)
    for (gamma, ratio, instability), records in sorted(
        groups.items(), key=lambda group: (group[0][0] == "inf", group[0][1], order.index(group[0][2]))
    ):
        names = ("sa", "ra", "va", "va_at_the_root", "undecided", "unr")
        shares = [fmean(column) for column in zip(*(r["sites"] for r in records), strict=True)]
        row = [
            "2, 1.5, 1, 0" if gamma == "stages" else "∞",
            f"{ratio:.0%}",
            instability,
            *(f"{100 * fmean(r[name] or 0 for r in records):.1f}" for name in names),
            ", ".join(f"{share:.0%}" for share in shares),
            str(len(records)),
        ]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/harm"))
    parser.add_argument("--runs", type=Path, default=Path("runs/harm"))
    parser.add_argument("--seeds", type=json.loads, default=[0, 1, 2], help="such as [0,1,2]")
    parser.add_argument("--ratios", type=json.loads, default=[0.3, 0.5, 0.7], help="such as [0.3,0.5,0.7]")
    parser.add_argument("--gammas", nargs="+", choices=STAGES, default=["stages"])
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--timeout", type=float, default=5.0)
    given = parser.parse_args()
    lines = given.out / "digits.jsonl"
    measure(given, lines)
    (given.out / "digits.md").write_text(table(lines), encoding="utf-8")
