"""Train, evaluate and verify with plain lingraft commands, and keep what they say in one small JSON file.

    python results/certified-training/measure.py digits     # four methods: minutes
    python results/certified-training/measure.py grafting   # of the first of them, without and with a certified term
    python results/certified-training/measure.py mnist      # IBP: minutes to an hour

Runs go to runs/certified-training/, where commands that are done already are not done again. Seconds of training are
those of the epochs, with their validation; of a run that this script found finished, CPU seconds are not known.
"""

import argparse
import json
import platform
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RUNS = Path("runs/certified-training")

DIGITS = "train --data digits --model digits-cnn --eps 0.1 --batch 64 --epochs 20 --threads 1"
MNIST = "train --data mnist --model cnn-b-half --eps 0.1 --epochs 6 --threads 1"
GRAFT = f"graft {RUNS}/digits-fat --ratio 0.5 --epochs 10 --lr 0.01 --threads 1"
VERIFY = "--images 100 --timeout 5 --workers 1"

#: name of the run → the command that makes it, and options of `lingraft verify` if it is verified
STUDIES: dict[str, dict[str, tuple[str, str | None]]] = {
    "digits": {
        "fat": (f"{DIGITS} --method fat --lr 0.05", VERIFY),
        "ibp": (f"{DIGITS} --method ibp --lr 0.005", VERIFY),
        "crown-ibp": (f"{DIGITS} --method crown-ibp --lr 0.005", VERIFY),
        "mtl-ibp": (f"{DIGITS} --method mtl-ibp --alpha 0.01 --lr 0.005", VERIFY),
        "mtl-ibp-0.1": (f"{DIGITS} --method mtl-ibp --alpha 0.1 --lr 0.005", VERIFY),
    },
    "grafting": {
        "plain": (GRAFT, VERIFY),
        "mtl-ibp-0.1": (f"{GRAFT} --finetune-loss mtl-ibp:0.1", VERIFY),
    },
    "mnist": {"ibp": (f"{MNIST} --method ibp", None)},
}


def lingraft(line: str) -> tuple[Any, float]:
    """Run a command; gives the JSON it prints and the CPU seconds it took."""
    print(f"lingraft {line}", flush=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "lingraft", *shlex.split(line), "--json"], check=True, stdout=subprocess.PIPE, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return json.loads(done.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(study: str, name: str) -> dict[str, Any]:
    """Everything about one run."""
    folder = RUNS / f"{study}-{name}"
    made_by, verification = STUDIES[study][name]
    begun_before = (folder / "history.jsonl").exists()
    commands = [f"{made_by} -o {folder}", f"evaluate {folder} --intervals --threads 1"]
    _, cpu = lingraft(commands[0])
    evaluated, _ = lingraft(commands[1])
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    result = {
        "seconds_of_training": round(sum(epoch["seconds"] for epoch in history), 1),
        "cpu_seconds_of_training": None if begun_before else round(cpu, 1),
        "sa": evaluated["sa"],
        "ra": evaluated["ra"],
        "attack": f"{evaluated['attack']}-{evaluated['steps']}x{evaluated['restarts']}",
        "images_attacked": evaluated["images"],
        "certified_by_intervals": evaluated["certified_by_intervals"],
        "images": evaluated["images_certified"],
    }
    if verification is not None:
        commands.append(f"verify {folder} {verification}")
        result["verification"], _ = lingraft(commands[-1])
    description = json.loads((folder / "model.json").read_text())
    kept = ("epoch", "loss", "sa", "ra", "certified", "lr", "seconds")
    return {
        "commands": [f"lingraft {command}" for command in commands],
        "seed": description["seed"],
        "versions": description["versions"],
        **result,
        "history": [{key: epoch[key] for key in kept if key in epoch} for epoch in history],
    }


def machine() -> dict[str, Any]:
    """What it ran on."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {"cpu": names[0].partition(":")[2].strip(), "cores": len(names), "system": platform.platform()}


def main() -> None:
    """Measure one study and write its file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    study = parser.parse_args().study
    runs = {name: measure(study, name) for name in STUDIES[study]}
    text = json.dumps({"machine": machine(), "runs": runs}, indent=1, ensure_ascii=False)
    (HERE / f"{study}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
