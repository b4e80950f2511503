"""What is traced as the operations that it is made of, so that nothing else has to know it: norms and attention."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.errors import LingraftError


def _layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Over the last dimensions, as many as the shape has."""
    sizes = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    return _scaled(_normalized(input, [dim - len(sizes) for dim in range(len(sizes))], eps), weight, bias)


def _group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Over all values of as many channels, dimension 1, as are a group."""
    groups = input.unflatten(1, (num_groups, -1)).flatten(2)
    result = _normalized(groups, [2], eps).reshape(input.shape)
    return _scaled(result.transpose(1, -1), weight, bias).transpose(1, -1)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(Q·Kᵀ/√d)·V."""
    if attn_mask is not None or dropout_p or is_causal or enable_gqa:
        raise LingraftError(
            "scaled_dot_product_attention is known without a mask, dropout and grouped queries only."
            " Write what else is needed with matmul and softmax."
        )
    factor = query.size(-1) ** -0.5 if scale is None else scale
    return torch.matmul(torch.softmax(torch.matmul(query, key.transpose(-2, -1)) * factor, -1), value)


class _Weights:
    """The weights of attention, which are not computed: whatever is made of them is an error."""

    def __getattr__(self, name: str) -> Any:
        raise LingraftError("it uses the weights of multi-head attention, which are not known. Leave them out.")

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls().shape


def _heads(
    layer: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, _Weights | None]:
    """Attention of each head to its part of the features."""
    masks = {"key_padding_mask": key_padding_mask, "attn_mask": attn_mask, "is_causal": is_causal or None}
    asked = [name for name, given in masks.items() if given is not None]
    if asked:
        raise LingraftError(f"multi-head attention is known without {', '.join(asked)} only. Leave that out.")
    unusual = layer.in_proj_weight is None or layer.bias_k is not None or layer.add_zero_attn
    if not layer.batch_first or layer.dropout or unusual:
        raise LingraftError(
            "multi-head attention is known with batch_first=True, dropout=0 and features of one size, without bias_kv"
            " and zero_attn, only. Make it so."
        )
    weights = torch.chunk(layer.in_proj_weight, 3)
    biases = (None,) * 3 if layer.in_proj_bias is None else torch.chunk(layer.in_proj_bias, 3)
    parts = [
        F.linear(x, weights[i], biases[i]).unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)
        for i, x in enumerate((query, key, value))
    ]
    joined = _attention(*parts).transpose(1, 2).flatten(2)
    # what asks whether there are weights goes the way that it goes with images
    return F.linear(joined, layer.out_proj.weight, layer.out_proj.bias), _Weights() if need_weights else None


def _normalized(x: Tensor, dims: list[int], eps: float) -> Tensor:
    """Less the mean over these dimensions, divided by the deviation."""
    x = torch.sub(x, torch.mean(x, dims, True))
    return torch.div(x, torch.sqrt(torch.add(torch.mean(torch.square(x), dims, True), eps)))


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else torch.mul(x, weight)
    return x if bias is None else torch.add(x, bias)


#: Of functions, with their arguments; of layers, exactly these, with the layer before its arguments.
COMPOSED: dict[Any, Callable[..., Any]] = {
    F.layer_norm: _layer_norm, torch.layer_norm: _layer_norm,
    F.group_norm: _group_norm, torch.group_norm: _group_norm,
    F.scaled_dot_product_attention: _attention,
}  # fmt: skip
COMPOSED_LAYERS: dict[type[nn.Module], Callable[..., Any]] = {
    nn.LayerNorm: lambda layer, x: _layer_norm(x, layer.normalized_shape, layer.weight, layer.bias, layer.eps),
    nn.GroupNorm: lambda layer, x: _group_norm(x, layer.num_groups, layer.weight, layer.bias, layer.eps),
    nn.MultiheadAttention: _heads,
}
