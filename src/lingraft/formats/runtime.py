"""onnxruntime as the second opinion on what an ONNX file computes."""

import copy
import math
from typing import Any

import numpy as np
import torch
from torch import nn

from lingraft.errors import LingraftError
from lingraft.formats.onnx_file import reason

#: Largest difference allowed, as a part of the largest output.
IMPORT_TOLERANCE = 1e-4
EXPORT_TOLERANCE = 1e-5
#: What differs by less than this many times what rounding changes in the module itself is no other network: rounded
#: arguments of a sine, or what is divided by almost nothing, change outputs by more than a small part.
_TIMES = 16
_BATCHES = 3
#: Points inside a box, and as many of its corners, that a comparison looks at.
_IN_BOX = 3


class Session:
    """An ONNX model in onnxruntime, on one CPU thread."""

    def __init__(self, model: Any):
        import onnxruntime  # slow to import, and not needed for reading

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        content = model if isinstance(model, bytes) else model.SerializeToString()
        # The exceptions of onnxruntime have no common base below Exception.
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise LingraftError(f"onnxruntime cannot load the network ({reason(error)}). Export it again.") from error
        self._inputs = self._session.get_inputs()
        self.dtype: type[np.floating[Any]] = np.float64 if "double" in self._inputs[0].type else np.float32

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """The dimensions of every input of the file for one input, where an open first one is 1."""
        return {i.name: tuple(n if isinstance(n, int) and n > 0 else 1 for n in i.shape) for i in self._inputs}

    @property
    def names(self) -> tuple[str, str]:
        """The names of the input and of the output of the file, the first ones if there are several."""
        return str(self._inputs[0].name), str(self._session.get_outputs()[0].name)

    def run(self, x: np.ndarray) -> np.ndarray:
        """Outputs for a batch `x` of the size that the file allows; in both, the batch comes first.

        That of a file that has no batch dimension is 1. Several inputs of a file are one vector of all their values.
        """
        if len(self._inputs) > 1:
            shapes = self.input_shapes
            ends = np.cumsum([math.prod(shape) for shape in shapes.values()])[:-1]
            parts = np.split(x.ravel(), ends)
            given = {n: part.reshape(shape) for part, (n, shape) in zip(parts, shapes.items(), strict=True)}
        else:
            (only,) = self._inputs
            given = {only.name: x.reshape(x.shape[1:]) if len(only.shape) < x.ndim else x}
        try:
            y = np.asarray(self._session.run(None, {n: part.astype(self.dtype) for n, part in given.items()})[0])
        except Exception as error:
            raise LingraftError(f"onnxruntime cannot run the network ({reason(error)}). Export it again.") from error
        y = y if y.ndim else y[None]  # a single number
        return y[None] if len(x) == 1 and (y.ndim < 2 or len(y) != 1) else y


def disagreement(
    session: Session, module: nn.Module, inputs: torch.Tensor, batch: int, overflow: bool = False
) -> float:
    """Largest |onnxruntime − torch| over `inputs`, as a part of the largest output.

    `inputs` has shape (k·batch, *input_shape): onnxruntime sees `batch` of them at a time, as the file says, and
    the module all at once, so that a module that mixes the images of a batch is found out. What rounding explains does
    not count. With `overflow`, inputs at which onnxruntime gives no finite numbers say nothing: an exponential of what
    is large is not wrong.
    """
    theirs = np.concatenate([session.run(part.numpy()) for part in inputs.split(batch)])
    try:
        with torch.no_grad():
            ours = module(inputs).numpy()
    except (RuntimeError, MemoryError) as error:
        raise LingraftError(f"the network cannot be run ({reason(error)}).") from error
    if ours.shape != theirs.shape:
        raise LingraftError(f"the network gives outputs of shape {ours.shape}, but {theirs.shape} in onnxruntime.")
    known = np.isfinite(theirs).reshape(len(theirs), -1).all(1) if overflow else np.full(len(theirs), True)
    ours, theirs = ours[known], theirs[known]
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        raise LingraftError("the network gives NaN or infinite outputs. Check its weights.")
    scale = max(float(np.abs(theirs).max(initial=0.0)), 1e-3)
    found = float(np.abs(ours - theirs).max(initial=0.0))
    if found > EXPORT_TOLERANCE * scale:
        found = max(0.0, found - _TIMES * _rounding(module, inputs, ours, known))
    return found / scale


def _rounding(module: nn.Module, inputs: torch.Tensor, ours: np.ndarray, known: np.ndarray) -> float:
    """How far float32 moved outputs that are `known`; 0 where that cannot be told."""
    if inputs.dtype != torch.float32:
        return 0.0
    try:
        with torch.no_grad():
            exact = copy.deepcopy(module).double()(inputs.double()).numpy()
    except Exception:  # a module of anybody's, whose own tensors may stay in float32
        return 0.0
    rounding = float(np.abs(exact[known] - ours).max(initial=0.0))
    return rounding if math.isfinite(rounding) else 0.0


def points_of(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Points (k, n) of the box between `low` and `high` (n,): middle, ends, corners and others, the same every time."""
    generator = torch.Generator().manual_seed(0)
    inner = torch.rand(_IN_BOX, *low.shape, generator=generator).to(low)
    parts = torch.cat([torch.tensor([0.5, 0.0, 1.0]).to(low)[:, None].expand(-1, *low.shape), inner, inner.round()])
    return torch.minimum(torch.maximum(low + parts * (high - low), low), high)


def random_inputs(shape: tuple[int, ...], batch: int) -> torch.Tensor:
    """A few inputs, uniform in [−1, 1] and the same every time."""
    generator = torch.Generator().manual_seed(0)
    return 2 * torch.rand(_BATCHES * batch, *shape, generator=generator) - 1
