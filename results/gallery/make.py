"""Put a run into the gallery: weights rounded to 16 bits, then measured, with its first 50 test images.

    python results/gallery/make.py RUN NAME --images 200 --timeout 30

writes src/lingraft/runs/gallery_networks/NAME. Its line in NETWORKS is written by hand.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

import lingraft
from lingraft.command import running
from lingraft.data import load
from lingraft.runs import Run, load_tensors, save_tensors

GALLERY = Path(__file__).parents[2] / "src" / "lingraft" / "runs" / "gallery_networks"

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("run")
parser.add_argument("name")
parser.add_argument("--images", type=int, default=200)
parser.add_argument("--timeout", type=float, default=30)
parser.add_argument("--attacked", type=int, default=1000)
arguments = parser.parse_args()

source = Run(arguments.run)
description = source.describe()
history = source.commands()
while description.parent is not None:  # all that was done, first things first
    parent = Run(description.parent)
    history = [*(record for record in parent.commands() if record not in history), *history]
    description = parent.describe()
description = source.describe()

with tempfile.TemporaryDirectory() as scratch:
    rounded = Run(Path(scratch) / arguments.name)
    tensors, _ = load_tensors(source.weights_path)
    halves = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    save_tensors(rounded.weights_path, halves)
    rounded.write_description(description.model_copy(update={"parent": None}))
    test = load(str(description.data), "test").take(50)
    save_tensors(
        rounded.path / "images" / f"{description.data}.safetensors", {"images": test.images, "labels": test.labels}
    )
    made = [record["command"] for record in history if record["command"].split()[1] in ("train", "graft", "reproduce")]
    for line in dict.fromkeys(made):
        with running(line):
            rounded.keep_command()
    lingraft.evaluate(rounded, steps=20, restarts=5, images=arguments.attacked)
    found = lingraft.verify(rounded, arguments.images, timeout=arguments.timeout, progress=True)
    for name in ("model.json", "model.safetensors", "summary.json", "commands.jsonl", "images"):
        path, to = rounded.path / name, GALLERY / arguments.name / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, to, dirs_exist_ok=True)
        elif path.exists():
            shutil.copy(path, to)
print(found.figures)
