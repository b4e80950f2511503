"""Networks of ONNX files, ready to be verified and to be run by onnxruntime."""

import math
import warnings
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn

from lingraft.errors import LingraftError
from lingraft.formats.onnx_import import read_network
from lingraft.model.logits import logits
from lingraft.solver.network import Network
from lingraft.solver.verifier import Verifier


class FlatNetwork(ABC):
    """A network whose inputs and outputs are flat; `module`, which takes `input_shape`, is the network in float64.

    In that, float32 weights and the numbers of any property are exact. `name` is what errors call it.
    """

    name: str
    device: torch.device
    input_shape: tuple[int, ...]
    inputs: int
    outputs: int
    module: nn.Module

    @abstractmethod
    def run(self, x: np.ndarray) -> np.ndarray:
        """The outputs that onnxruntime gives one input."""

    def verifier(self, double: bool, *appended: nn.Module) -> Verifier:
        """The network with further layers appended, made ready for verification; `double` as in `lingraft.verify`."""
        if not appended:
            return Verifier(self._plain, double)
        return Verifier(self._converted(*appended), double)

    @cached_property
    def _plain(self) -> Network:
        """Converted once for all properties."""
        return self._converted()

    @cached_property
    def before_softmax(self) -> Network | None:
        """What a last softmax over the outputs is of, where comparing two of them gives the same; None without one."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it says that the softmax is left out
                module = logits(self.module, self.input_shape) if self.outputs > 1 else self.module
        except LingraftError:
            return None
        return None if module is self.module else self._converted(of=module)

    @torch.inference_mode(False)
    def _converted(self, *appended: nn.Module, of: nn.Module | None = None) -> Network:
        whole = nn.Sequential(self.module if of is None else of, *appended).to(self.device).eval()
        try:
            return Network.from_module(whole, self.input_shape)
        except LingraftError as error:
            raise LingraftError(f"{self.name}: {error}") from error


class OnnxNetwork(FlatNetwork):
    """The network of a file; inputs and outputs are in the order of VNN-LIB's X_0 … and Y_0 …

    `output` is another value than the only output, see `select_output`. Several inputs are one vector; `input_shapes`
    has the dimensions of each in the file, in order. `values` is how many an input has, where that is known.
    """

    def __init__(
        self,
        path: str | Path,
        device: str | torch.device = "cpu",
        output: str | int | None = None,
        values: int | None = None,
    ):
        self.path, self.device, self.name = Path(path), torch.device(device), str(path)
        module, self._session, self._batch = read_network(path, output, joined=True, values=values)
        self.input_shape, self.input_shapes = module.input_shape, self._session.input_shapes
        #: what its input and output are called in the file, and whether that has no other output
        self.names, self.whole = self._session.names, bool(module.whole)
        self.inputs = math.prod(self.input_shape)
        y = self._session.run(np.zeros((self._batch, *self.input_shape), np.float32))
        self.output_shape, self.outputs = y.shape[1:], y[0].size
        flat = module if y.ndim == 2 else nn.Sequential(module, nn.Flatten())
        self.module = flat.double().to(device).eval()

    def run(self, x: np.ndarray) -> np.ndarray:
        """The outputs that onnxruntime gives one input; both in the precision of the file."""
        batch = np.repeat(x.reshape(1, *self.input_shape), self._batch, axis=0)
        y = self._session.run(batch)[0].ravel()
        if not np.isfinite(y).all():
            raise LingraftError(f"{self.path}: the network gives NaN or infinite outputs. Check its weights.")
        return y
