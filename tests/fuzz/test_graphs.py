"""The network that the checker reads is the one that onnxruntime runs, or it is refused: on random graphs.

`LINGRAFT_FUZZ=20000 make fuzz` tries 20,000 of them.
"""

import os
from collections import Counter

import numpy as np
from graphs import draw

from lingraft.checker.evaluation import noise, outputs
from lingraft.checker.network import inner
from lingraft.checker.onnx_reader import network_of
from lingraft.checker.runtime import Runtime
from lingraft.errors import LingraftError

COUNT = max(400, int(os.environ.get("LINGRAFT_FUZZ", "0")))


def outcome(seed: int) -> str:
    """What becomes of one graph."""
    content, shape, dtype = draw(seed)
    try:
        network = network_of(content, "drawn")
    except LingraftError:
        return "refused"
    random = np.random.default_rng(seed)
    try:
        runtime = Runtime(content)
        images = [random.standard_normal(shape[1:]).astype(dtype) * scale for scale in (1, 0.1, 10)]
        theirs = [runtime.outputs(image) for image in images]
    except LingraftError:  # it has no code for some operations on float64, and some rules of its own
        return "does not run"
    for image, found in zip(images, theirs, strict=True):
        point = inner(image.astype(np.float64))
        value = outputs(network, point)
        if found.shape != value.shape:
            return "different shapes"
        explained = 16 * max(noise(network, point, runtime.unit, random).max() for _ in range(2))
        explained += 16 * runtime.unit * np.abs(image).max()  # x − x is exact in the one, and not in the other
        if not np.abs(found - value).max() <= explained:
            return f"different: {np.abs(found - value).max():.3g}, and rounding explains {explained:.3g}"
    return "the same"


def test_no_graph_is_accepted_and_different() -> None:
    seen: Counter[str] = Counter()
    wrong: dict[int, str] = {}
    for seed in range(COUNT):
        result = outcome(seed)
        fine = result in ("refused", "the same", "does not run")
        seen[result if fine else "wrong"] += 1
        if not fine:
            wrong[seed] = result
    print(f"\n{COUNT:,} graphs: {dict(seen)}")
    assert not wrong, f"{len(wrong)} graphs, among them {dict(list(wrong.items())[:10])}"
    assert seen["the same"] > COUNT / 3  # else this says little
    assert seen["does not run"] < COUNT / 20
