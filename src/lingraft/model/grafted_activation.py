"""The grafted activation: a straight line in chosen neurons, the original activation in all others."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lingraft.errors import LingraftError
from lingraft.model.activations import Activation
from lingraft.model.activations.relu import RELU
from lingraft.model.line_relu import line_relu


class GraftedActivation(nn.Module):
    """slope·x + intercept where `mask` is True, the base activation elsewhere (the paper, Section 4).

    Shape: (N, *neurons) → the same, where `neurons` is the shape of one image's neurons.

    `slope` and `intercept` are parameters of shape (1, *neurons), of which only the grafted coordinates mean anything;
    gradients elsewhere are zero. Grafting more neurons later thus keeps the parameters, and what an optimizer knows
    of them, in place. The state dict holds the mask as bits, and slopes and intercepts of grafted neurons only.
    An activation with weights (PReLU) keeps them here as parameters of the same names.
    Neurons pruned with `prune` are grafted with the constant 0 and are never trained.
    """

    mask: Tensor
    fixed: Tensor

    def __init__(self, base: Activation, neurons: Sequence[int]):
        super().__init__()
        self._base = base
        #: the activation's own weights, if it has any, which go on being trained
        self._weights = [name for name, value in base.arguments.items() if isinstance(value, Tensor)]
        for name in self._weights:
            self.register_parameter(name, nn.Parameter(base.arguments[name].detach().clone()))
        shape = tuple(neurons)
        self.slope = nn.Parameter(torch.zeros(1, *shape))
        self.intercept = nn.Parameter(torch.zeros(1, *shape))
        self.register_buffer("mask", torch.zeros(shape, dtype=torch.bool), persistent=False)
        self.register_buffer("fixed", torch.zeros(shape, dtype=torch.bool), persistent=False)
        self._count = 0
        self._trained = False
        self._constants: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def base(self) -> Activation:
        """The activation of the neurons that are not grafted."""
        if not self._weights:
            return self._base
        return self._base.called_with({name: getattr(self, name) for name in self._weights})

    @property
    def neurons(self) -> tuple[int, ...]:
        """Shape of the neurons of one image."""
        return tuple(self.mask.shape)

    @property
    def grafted(self) -> int:
        """Number of grafted neurons, pruned ones included."""
        return self._count

    def graft(self, mask: Tensor, slope: float | None = None, intercept: float | None = None) -> None:
        """Graft the neurons of `mask` that are not grafted yet, in place, from this line (None: its activation's)."""
        new = self._new(mask)
        usual_slope, usual_intercept = self.base.start
        with torch.no_grad():
            self.slope[0, new] = usual_slope if slope is None else slope
            self.intercept[0, new] = usual_intercept if intercept is None else intercept
        self._set_masks(self.mask | new, self.fixed)

    def prune(self, mask: Tensor) -> None:
        """Fix the neurons of `mask` that are not grafted yet at 0, in place."""
        new = self._new(mask)
        self._set_masks(self.mask | new, self.fixed | new)

    def ungraft(self, mask: Tensor) -> None:
        """Give the neurons of `mask` their activation back, in place."""
        kept = ~mask.to(self.mask.device)
        self._set_masks(self.mask & kept, self.fixed & kept)

    def line(self) -> tuple[Tensor, Tensor]:
        """Slope and intercept of every neuron, of the neuron shape; 0 where the neuron is not grafted."""
        learned = self.mask & ~self.fixed
        return self.slope[0].where(learned, 0), self.intercept[0].where(learned, 0)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1:] != self.mask.shape:
            raise LingraftError(
                f"a grafted {self.base.name} has a mask of shape {self.neurons} but gets neurons of shape"
                f" {tuple(x.shape[1:])}. Make the masks from lingraft.sites(model, input_shape)."
            )
        if not self._count:
            return self.base.value(x)
        learned, keep, floor = self._constants_for(x)
        slope, intercept = _like(x, self.slope), _like(x, self.intercept)
        if not self._trained:
            slope, intercept = slope.detach(), intercept.detach()
        intercept = intercept.where(learned, 0)
        if self.base is RELU:
            return line_relu(x, slope.where(learned, keep), intercept, floor)
        line = torch.addcmul(intercept, x, slope.where(learned, 0))
        return torch.addcmul(line, self.base.value(x), keep)

    def extra_repr(self) -> str:
        return f"{self.base.name}, {self.grafted} of {self.mask.numel()} grafted"

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
        self._trained = bool((mask & ~fixed).any())
        self._constants = None

    def _constants_for(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Learned or not, 1 for neurons that keep their activation, and the floor that `line_relu` wants.

        Remembered until the masks, the device or the memory format change.
        """
        if self._constants is None or not _matches(x, self._constants[1]):
            with torch.inference_mode(False):  # they outlive this pass, and the next one may be differentiated
                mask, learned = (_like(x, m.unsqueeze(0), torch.bool) for m in (self.mask, self.mask & ~self.fixed))
                keep = (~mask).to(x.dtype)
                self._constants = learned, keep, torch.zeros_like(keep).masked_fill_(mask, -torch.inf)
        return self._constants

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        learned = self.mask & ~self.fixed
        destination[prefix + "mask"] = pack(self.mask)
        if self.fixed.any():
            destination[prefix + "fixed"] = pack(self.fixed)
        for name, values in (("slope", self.slope), ("intercept", self.intercept)):
            destination[prefix + name] = (values if keep_vars else values.detach())[0, learned]
        for name in self._weights:
            destination[prefix + name] = getattr(self, name) if keep_vars else getattr(self, name).detach()

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
        weights = {name: prefix + name for name in self._weights}
        missing = [name for name in (*names, *weights.values()) if name not in state_dict]
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
        for name, key in weights.items():
            if state_dict[key].shape != getattr(self, name).shape:
                error_msgs.append(f"{key} has shape {tuple(state_dict[key].shape)}, not that of the model")
                return
        with torch.no_grad():
            for name, key in weights.items():
                getattr(self, name).copy_(state_dict[key])
            for parameter, values in ((self.slope, slope), (self.intercept, intercept)):
                parameter.zero_()
                parameter[0, learned] = values.to(parameter)
        self._set_masks(mask, fixed)


def pack(mask: Tensor) -> Tensor:
    """A boolean tensor as bits: uint8 of shape (⌈neurons / 8⌉,)."""
    return torch.from_numpy(np.packbits(mask.cpu().numpy().ravel()))


def unpack(bits: Tensor, shape: Sequence[int]) -> Tensor:
    """The boolean tensor of this shape that `pack` made into bits."""
    count = int(np.prod(shape))
    return torch.from_numpy(np.unpackbits(bits.cpu().numpy(), count=count).astype(bool)).view(*shape)


def _channels_last(x: Tensor) -> bool:
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def _matches(x: Tensor, values: Tensor) -> bool:
    """Whether `values` of shape (1, *neurons) can be combined with x at full speed."""
    return (values.device, values.dtype, _channels_last(values)) == (x.device, x.dtype, _channels_last(x))


def _like(x: Tensor, values: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """`values` of shape (1, *neurons) with the device, type and memory format of x."""
    layout = torch.channels_last if _channels_last(x) else torch.contiguous_format
    return values.to(device=x.device, dtype=dtype or x.dtype).contiguous(memory_format=layout)
