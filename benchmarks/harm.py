"""Which measure of instability gives the best VA for the SA: the paper's count, or harm? On digits, several seeds.

    python benchmarks/harm.py --out results/harm

trains a network for each seed, grafts it by every measure at every ratio, fine-tunes, and measures SA on all test
images, RA and VA on the first ones. Every setting is one line of digits.jsonl; what is there is not done again.
digits.md is the table of all lines.
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import fmean

import torch

from lingraft.data import load
from lingraft.demo import one_thread, train_network
from lingraft.evaluation import Attack, evaluate
from lingraft.files import append_line, read_lines
from lingraft.grafting import (
    GAMMAS,
    INSTABILITIES,
    FineTuning,
    GraftingConfig,
    choose,
    fine_tuning_defaults,
    graft_and_tune,
    masks,
    score,
)
from lingraft.runs import Run
from lingraft.verification.summary import summarize
from lingraft.verification.verify import verify

CPU, EPS = torch.device("cpu"), 0.05
STAGES = {"stages": GAMMAS, "inf": (float("inf"),)}


@one_thread()
def measure(seeds: list[int], ratios: list[float], gammas: list[str], images: int, timeout: float, path: Path) -> None:
    """Append what is missing."""
    done = {(r["seed"], r["ratio"], r["instability"], r["gamma"]) for r in read_lines(path)}
    train, validation, test = (load("digits", split) for split in ("train", "validation", "test"))
    few = test.take(images)
    attack = Attack(EPS, steps=20, restarts=2)
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            parent = Run(Path(folder) / "parent")
            model = train_network(parent, EPS, seed, CPU).eval()
            description = parent.describe().model_copy(update={"parent": str(parent.path)})
            scores = {}
            for ratio in ratios:
                for gamma in gammas:
                    for instability in INSTABILITIES:
                        if (seed, ratio, instability, gamma) in done:
                            continue
                        config = GraftingConfig(
                            EPS, ratio=ratio, gammas=STAGES[gamma], instability=instability, bound_images=50, seed=seed
                        )
                        if instability not in scores:
                            scores[instability] = score(model, train, config)
                        tuning = FineTuning(
                            fine_tuning_defaults(EPS, epochs=8, batch=64, lr=0.005, seed=seed), line_lr=0.05
                        )
                        grafted, _ = graft_and_tune(
                            model, train, validation, config, tuning, Run(Path(folder) / "run"), description,
                            mask=choose(scores[instability], config), restart=True, report=lambda epoch: None,
                        )  # fmt: skip
                        found = evaluate(grafted, test, attack, images=images)
                        results = verify(grafted, few.pixels(), few.labels, eps=EPS, timeout=timeout, workers=0)
                        proven = summarize(results, timeout)
                        at_once = sum(r.verdict == "verified" and r.stage != "branch" for r in results)
                        append_line(
                            path,
                            {
                                "seed": seed,
                                "ratio": ratio,
                                "instability": instability,
                                "gamma": gamma,
                                "sa": found.sa,
                                "ra": found.ra,
                                "va": proven.va,
                                "va_without_branching": at_once / images,
                                "undecided": proven.unknown_share,
                                "unr": proven.unr,
                                "images": images,
                                "timeout": timeout,
                                "sites": [round(float(m.double().mean()), 3) for m in masks(grafted).values()],
                            },
                        )
                        print(path.read_text().splitlines()[-1], flush=True)


def table(path: Path) -> str:
    """Means over the seeds, in percent, as Markdown."""
    groups: dict[tuple[str, float, str], list[dict[str, float]]] = {}
    for record in read_lines(path):
        groups.setdefault((record["gamma"], record["ratio"], record["instability"]), []).append(record)
    lines = [
        "| γ | ratio | instability | SA | RA | VA | at the root | undecided | UNR | grafted, site by site | seeds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (gamma, ratio, instability), records in sorted(groups.items(), key=lambda g: (g[0][0] == "inf", g[0][1])):
        figures = [
            f"{100 * fmean(r[name] or 0 for r in records):.1f}"
            for name in ("sa", "ra", "va", "va_without_branching", "undecided", "unr")
        ]
        shares = [fmean(column) for column in zip(*(r["sites"] for r in records), strict=True)]
        row = [
            "2, 1.5, 1, 0" if gamma == "stages" else "∞", f"{ratio:.0%}", instability, *figures,
            ", ".join(f"{share:.0%}" for share in shares), str(len(records)),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/harm"))
    parser.add_argument("--seeds", type=json.loads, default=[0, 1, 2], help="such as [0,1,2]")
    parser.add_argument("--ratios", type=json.loads, default=[0.3, 0.5, 0.7], help="such as [0.3,0.5,0.7]")
    parser.add_argument("--gammas", nargs="+", choices=STAGES, default=["stages"])
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--timeout", type=float, default=2.0)
    given = parser.parse_args()
    lines = given.out / "digits.jsonl"
    measure(given.seeds, given.ratios, given.gammas, given.images, given.timeout, lines)
    (given.out / "digits.md").write_text(table(lines), encoding="utf-8")
