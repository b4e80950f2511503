"""Is the network that was read the one that runs? Compared with onnxruntime, where that is installed.

A proof is about the checker's own reading of the ONNX file. This does not make the proof any stronger; it notices where
that reading and the program that people run have a different opinion of the file.
"""

import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np

from lingraft.checker.bounds import Bounds
from lingraft.checker.evaluation import noise, outputs
from lingraft.checker.network import Network, inner_places
from lingraft.checker.rounding import Array
from lingraft.checker.rows import Rows, Tally
from lingraft.errors import LingraftError

#: Margins, the lowest at the center, of which the corner is tried where they should be least.
LOWEST = 3


def installed() -> bool:
    """Whether onnxruntime is there."""
    try:
        return importlib.util.find_spec("onnxruntime") is not None
    except ValueError:  # blocked
        return False


class Runtime:
    """onnxruntime on the content of an ONNX file, and of those with its weights by name, on one thread."""

    def __init__(self, content: bytes, weights: Mapping[str, bytes] | None = None):
        import onnxruntime  # an extra program, not a part of the checker

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            if weights:
                sizes = [len(data) for data in weights.values()]
                options.add_external_initializers_from_files_in_memory(list(weights), list(weights.values()), sizes)
            self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # whatever it raises, it cannot run the file
            raise LingraftError(f"onnxruntime cannot run the network: {_line(error)}.") from error
        entry = self.session.get_inputs()[0]
        self.name = entry.name
        self.dtype: type[np.floating[Any]] = np.float64 if "double" in entry.type else np.float32
        self.unit = float(np.finfo(self.dtype).eps) / 2

    def outputs(self, image: np.ndarray) -> Array:
        """The outputs (outputs,) for one image of the network's input shape."""
        try:
            found = self.session.run(None, {self.name: image[None].astype(self.dtype)})
        except Exception as error:
            raise LingraftError(f"onnxruntime cannot run the network: {_line(error)}.") from error
        return np.asarray(found[0], dtype=np.float64).reshape(-1)


def compare(network: Network, runtime: Runtime, low: Array, high: Array, spec: Array) -> int:
    """Raise LingraftError where the two differ by more than rounding can explain; returns the number of points.

    `low` and `high` are the region in the inner order, `spec` (L, outputs) the margins.
    """
    places, random = inner_places(network.shape), np.random.default_rng(0)
    # what it can be given: rounded, so that it need not lie in the region
    tried = [point.astype(runtime.dtype).astype(np.float64) for point in points(network, low, high, spec)]
    values = [outputs(network, point) for point in tried]
    explained = 16 * np.max([noise(network, point, runtime.unit, random) for point in tried[:3]], axis=0)
    for point, value in zip(tried, values, strict=True):
        theirs = runtime.outputs(point.reshape(-1)[places].reshape(network.shape))
        if theirs.shape != value.shape:
            raise LingraftError(f"onnxruntime gives {theirs.size} outputs, not {value.size}.")
        wrong = np.flatnonzero(~(np.abs(theirs - value) <= explained))
        if len(wrong):
            i = int(wrong[0])
            raise LingraftError(
                f"onnxruntime computes another function: output {i} is {theirs[i]:.9g} at a point"
                f" where it should be {value[i]:.9g}, and rounding explains {explained[i]:.3g} at most."
            )
    return len(tried)


def points(network: Network, low: Array, high: Array, spec: Array) -> list[Array]:
    """Points of a region: its center, two opposite corners, random ones, and corners where margins should be least."""
    random = np.random.default_rng(0)
    center = low + (high - low) / 2
    corners = [random.integers(0, 2, low.shape).astype(np.float64) for _ in range(2)]
    found: list[Array] = [center, low, high, *(low + s * (high - low) for s in (*corners, random.random(low.shape)))]
    lowest = np.argsort(spec @ outputs(network, center))[:LOWEST]  # a claim may have very many margins
    return [*found, *(np.where(slope > 0, low, high) for slope in _slopes(network, center, spec[lowest]))]


def _slopes(network: Network, point: Array, spec: Array) -> Array:
    """Gradients (L, *inner shape) of margins at a point: bounds of one point are no bounds at all."""
    bounds = Bounds(network, point, point)
    tally = Tally(np.zeros((1, len(spec))), np.zeros((1, len(spec))))
    rows = bounds.pass_back({len(network.nodes) - 1: Rows(spec[None])}, tally, bounds.relaxed)
    gradients = np.zeros((len(spec), *point.shape)) if rows is None else rows.whole(point.shape).a[0]
    return gradients.reshape(len(spec), *point.shape)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".")
