"""Writing robustness properties in VNN-LIB 1.0, and the `instances.csv` that makes a folder a VNN-COMP benchmark."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lingraft.errors import LingraftError
from lingraft.files import replacing
from lingraft.formats.answer import decimal


def write_vnnlib(path: str | Path, lower: np.ndarray, upper: np.ndarray, label: int, classes: int) -> None:
    """Write "no input with lower <= x <= upper gets another label": arrays of any one shape, classes ≥ 2.

    Bounds are written with all digits, so that reading the file gives exactly the same numbers.
    """
    lows, highs = np.asarray(lower).ravel(), np.asarray(upper).ravel()
    if lows.shape != highs.shape or not np.isfinite(lows).all() or not np.isfinite(highs).all() or (lows > highs).any():
        raise LingraftError("a box needs finite bounds, lower <= upper, of the same shape.")
    if not 0 <= label < classes or classes < 2:
        raise LingraftError(f"label {label} is none of {classes} classes.")
    lines = [f"; every input of the box is classified as {label}"]
    lines += [f"(declare-const X_{i} Real)" for i in range(len(lows))]
    lines += [f"(declare-const Y_{i} Real)" for i in range(classes)]
    for i, (low, high) in enumerate(zip(lows.tolist(), highs.tolist(), strict=True)):
        lines += [f"(assert (>= X_{i} {decimal(low)}))", f"(assert (<= X_{i} {decimal(high)}))"]
    lines.append("(assert (or")
    lines += [f"    (and (>= Y_{other} Y_{label}))" for other in range(classes) if other != label]
    lines.append("))")
    with replacing(Path(path)) as part:
        part.write_text("\n".join(lines) + "\n", encoding="ascii")


def write_instances(folder: str | Path, network: str, properties: Sequence[str], timeout: float) -> Path:
    """Write `instances.csv` in `folder`: network, property (both relative to it) and seconds allowed, a line each."""
    path = Path(folder) / "instances.csv"
    with replacing(path) as part, open(part, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows((network, name, f"{timeout:g}") for name in properties)
    return path
