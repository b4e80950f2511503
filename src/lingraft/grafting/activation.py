"""The grafted activation: a straight line in chosen neurons, the original activation in all others."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingraft.errors import LingraftError
from lingraft.grafting.line_relu import line_relu

#: The activations that can be grafted.
BASES = ("relu", "leaky_relu", "sigmoid", "tanh")


class GraftedActivation(nn.Module):
    """slope·x + intercept where `mask` is True, the base activation elsewhere (the paper, Section 4).

    Shape: (N, *neurons) → the same, where `neurons` is the shape of one image's neurons.

    `slope` and `intercept` are parameters of the neuron shape, of which only the grafted coordinates mean anything;
    gradients elsewhere are zero. Grafting more neurons later thus keeps the parameters, and what an optimizer knows
    of them, in place. The state dict holds the mask as bits, and slopes and intercepts of grafted neurons only.
    Neurons pruned with `prune` are grafted with the constant 0 and are never trained.
    """

    mask: Tensor
    fixed: Tensor

    def __init__(self, base: str, neurons: Sequence[int], negative_slope: float = 0.0):
        super().__init__()
        if base not in BASES:
            raise LingraftError(f"cannot graft the activation {base!r}. Known: {', '.join(BASES)}.")
        self.base = base
        self.negative_slope = negative_slope
        shape = tuple(neurons)
        self.slope = nn.Parameter(torch.zeros(shape))
        self.intercept = nn.Parameter(torch.zeros(shape))
        self.register_buffer("mask", torch.zeros(shape, dtype=torch.bool), persistent=False)
        self.register_buffer("fixed", torch.zeros(shape, dtype=torch.bool), persistent=False)
        self._count = 0
        self._floor: Tensor | None = None

    @property
    def neurons(self) -> tuple[int, ...]:
        """Shape of the neurons of one image."""
        return tuple(self.mask.shape)

    @property
    def grafted(self) -> int:
        """Number of grafted neurons, pruned ones included."""
        return self._count

    def graft(self, mask: Tensor, slope: float, intercept: float) -> None:
        """Graft the neurons of `mask` that are not grafted yet, in place, with these initial values."""
        new = self._new(mask)
        with torch.no_grad():
            self.slope[new] = slope
            self.intercept[new] = intercept
        self._set_masks(self.mask | new, self.fixed)

    def prune(self, mask: Tensor) -> None:
        """Fix the neurons of `mask` that are not grafted yet at 0, in place."""
        new = self._new(mask)
        self._set_masks(self.mask | new, self.fixed | new)

    def line(self) -> tuple[Tensor, Tensor]:
        """Slope and intercept of every neuron, of the neuron shape; 0 where the neuron is not grafted."""
        learned = self.mask & ~self.fixed
        return self.slope.where(learned, 0), self.intercept.where(learned, 0)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1:] != self.mask.shape:
            raise LingraftError(
                f"a grafted {self.base} has a mask of shape {self.neurons} but gets neurons of shape"
                f" {tuple(x.shape[1:])}. Make the masks from lingraft.sites(model, input_shape)."
            )
        if not self._count:
            return self._activation(x)
        learned = self.mask & ~self.fixed
        if self.base == "relu":
            scale = torch.where(learned, self.slope, (~self.mask).to(self.slope.dtype))
            return line_relu(x, _as(x, scale), _as(x, self.intercept.where(learned, 0)), self._floor_for(x))
        slope, intercept = self.line()
        line = torch.addcmul(intercept, x, slope)
        return torch.addcmul(line, self._activation(x), (~self.mask).to(x.dtype))

    def extra_repr(self) -> str:
        return f"{self.base}, {self.grafted} of {self.mask.numel()} grafted"

    def _activation(self, x: Tensor) -> Tensor:
        if self.base == "relu":
            return F.relu(x)
        if self.base == "leaky_relu":
            return F.leaky_relu(x, self.negative_slope)
        return torch.sigmoid(x) if self.base == "sigmoid" else torch.tanh(x)

    def _new(self, mask: Tensor) -> Tensor:
        if mask.dtype != torch.bool or mask.shape != self.mask.shape:
            raise LingraftError(
                f"the mask is {mask.dtype} of shape {tuple(mask.shape)}; it must be torch.bool of the neuron shape"
                f" {self.neurons}."
            )
        return mask.to(self.mask.device) & ~self.mask

    def _set_masks(self, mask: Tensor, fixed: Tensor) -> None:
        self.mask, self.fixed = mask, fixed
        self._count = int(mask.sum())
        self._floor = None

    def _floor_for(self, x: Tensor) -> Tensor:
        """The floor that `line_relu` wants, remembered until the masks, the device or the memory format change."""
        channels_last = _is_channels_last(x)
        floor = self._floor
        if (
            floor is None
            or (floor.device, floor.dtype) != (x.device, x.dtype)
            or (x.dim() == 4 and _is_channels_last(floor) != channels_last)
        ):
            floor = _as(x, torch.zeros_like(self.slope, dtype=x.dtype).masked_fill_(self.mask, -torch.inf).detach())
            self._floor = floor
        return floor

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        learned = self.mask & ~self.fixed
        destination[prefix + "mask"] = pack(self.mask)
        if self.fixed.any():
            destination[prefix + "fixed"] = pack(self.fixed)
        for name, values in (("slope", self.slope), ("intercept", self.intercept)):
            destination[prefix + name] = (values if keep_vars else values.detach())[learned]

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        names = [prefix + name for name in ("mask", "slope", "intercept")]
        missing = [name for name in names if name not in state_dict]
        if missing:
            missing_keys.extend(missing)
            return
        bits, slope, intercept = (state_dict[name] for name in names)
        fixed_bits = state_dict.get(prefix + "fixed")
        wanted = (self.mask.numel() + 7) // 8
        if any(b is not None and (b.dtype != torch.uint8 or b.shape != (wanted,)) for b in (bits, fixed_bits)):
            error_msgs.append(f"{prefix}mask does not have the {wanted} bytes of a mask of shape {self.neurons}")
            return
        mask = unpack(bits, self.neurons).to(self.mask.device)
        fixed = torch.zeros_like(mask) if fixed_bits is None else unpack(fixed_bits, self.neurons).to(mask.device)
        learned = mask & ~fixed
        count = int(learned.sum())
        if slope.shape != (count,) or intercept.shape != (count,):
            error_msgs.append(f"{prefix}slope and intercept do not have one value for each of {count} grafted neurons")
            return
        with torch.no_grad():
            for parameter, values in ((self.slope, slope), (self.intercept, intercept)):
                parameter.zero_()
                parameter[learned] = values.to(parameter)
        self._set_masks(mask, fixed)


def pack(mask: Tensor) -> Tensor:
    """A boolean tensor as bits: uint8 of shape (⌈neurons / 8⌉,)."""
    return torch.from_numpy(np.packbits(mask.cpu().numpy().ravel()))


def unpack(bits: Tensor, shape: Sequence[int]) -> Tensor:
    """The boolean tensor of this shape that `pack` made into bits."""
    count = int(np.prod(shape))
    return torch.from_numpy(np.unpackbits(bits.cpu().numpy(), count=count).astype(bool)).view(*shape)


def _is_channels_last(x: Tensor) -> bool:
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def _as(x: Tensor, values: Tensor) -> Tensor:
    """`values` of the neuron shape as (1, *neurons) in the memory format of x, to be combined with it at full speed."""
    values = values.unsqueeze(0).to(x.dtype)
    return values.contiguous(memory_format=torch.channels_last) if _is_channels_last(x) else values
