"""The grafted ReLU as fast as torch's own: y = max(x, floor)·scale + shift, with per-neuron floor, scale and shift.

A neuron that keeps its ReLU has floor 0, scale 1, shift 0; a grafted one floor −∞, scale = slope, shift = intercept.
Written with torch.where this takes several passes over memory; here each pass works on a few images at a time, so that
what one operation writes is still in the cache when the next one reads it.

The gradient is split over two nodes, so that a gradient with respect to the input alone (an attack, GradAlign) does not
pay for the gradients of the lines. Both nodes can be differentiated again, as GradAlign needs.
The gradients of `scale` and `shift` are right where the neuron is grafted, and to be masked by the caller elsewhere.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

#: Values a thread works on at a time: a few megabytes, which the caches hold. Fewer would mean more operations, and
#: each of them waits for all threads, which is slow where other programs want the cores too.
CACHED_VALUES = 1 << 19

_gate = torch.ops.aten.threshold_backward.grad_input


def line_relu(x: Tensor, scale: Tensor, shift: Tensor, floor: Tensor) -> Tensor:
    """max(x, floor)·scale + shift for x of shape (N, *neurons) and the others of shape (1, *neurons).

    `floor` is 0 or −∞; scale and shift get gradients that hold where floor is −∞.
    """
    if not (torch.is_grad_enabled() and (scale.requires_grad or shift.requires_grad)):
        return _Forward.apply(x, None, (scale, shift, floor))
    token = _Coefficients.apply(scale, shift, (x,))
    return _Forward.apply(x, token, (scale, shift, floor))


def _images_at_a_time(x: Tensor) -> int:
    """How many images of x fit in the cache; all of them on a device that has no such cache."""
    if x.device.type != "cpu" or not x.numel():
        return max(1, len(x))
    return max(1, CACHED_VALUES * torch.get_num_threads() * len(x) // x.numel())


class _Forward(Function):
    """The value, and the gradient of x. Tensors in a tuple are seen by autograd only when differentiating twice."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, token: Tensor | None, line: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        scale, shift, floor = line
        ctx.save_for_backward(x, scale, floor)
        y = torch.empty_like(x)
        size = _images_at_a_time(x)
        for part, out in zip(x.split(size), y.split(size), strict=True):
            torch.clamp(part, min=floor, out=out)
            torch.addcmul(shift, out, scale, out=out)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, scale, floor = ctx.saved_tensors
        of_x = _InputGradient.apply(gradient, scale, (x, floor)) if ctx.needs_input_grad[0] else None
        return of_x, gradient if ctx.needs_input_grad[1] else None, None


class _Coefficients(Function):
    """Makes a token, a tensor without memory of its own, through which the gradient reaches scale and shift."""

    @staticmethod
    def forward(ctx: FunctionCtx, scale: Tensor, shift: Tensor, held: tuple[Tensor]) -> Tensor:
        (x,) = held
        ctx.save_for_backward(x)
        return x.new_zeros(()).expand(x.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (x,) = ctx.saved_tensors
        of_scale = _product_over_batch(gradient, x) if ctx.needs_input_grad[0] else None
        of_shift = _sum_over_batch(gradient) if ctx.needs_input_grad[1] else None
        return of_scale, of_shift, None


class _InputGradient(Function):
    """gradient·scale where x > floor, else 0; differentiable in gradient and scale."""

    @staticmethod
    def forward(ctx: FunctionCtx, gradient: Tensor, scale: Tensor, held: tuple[Tensor, Tensor]) -> Tensor:
        x, floor = held
        ctx.save_for_backward(gradient, scale, x, floor)
        result = torch.empty_like(x)
        size = _images_at_a_time(x)
        for g, part, out in zip(gradient.split(size), x.split(size), result.split(size), strict=True):
            torch.sub(part, floor, out=out)
            _gate(g, out, 0, grad_input=out)
            out.mul_(scale)
        return result

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        gradient, scale, x, floor = ctx.saved_tensors
        of_gradient = _InputGradient.apply(direction, scale, (x, floor)) if ctx.needs_input_grad[0] else None
        of_scale = _product_over_batch(direction, gradient) if ctx.needs_input_grad[1] else None
        return of_gradient, of_scale, None


def _product_over_batch(a: Tensor, b: Tensor) -> Tensor:
    """Σₙ aₙ·bₙ, of shape (1, *neurons)."""
    if torch.is_grad_enabled():
        return (a * b).sum(0, keepdim=True)
    size = min(_images_at_a_time(b), len(b))
    total = torch.zeros_like(b[:size])
    for part_a, part_b in zip(a.split(size), b.split(size), strict=True):
        total[: len(part_b)].addcmul_(part_a, part_b)
    return _sum_over_batch(total)


def _sum_over_batch(a: Tensor) -> Tensor:
    """Σₙ aₙ, of shape (1, *neurons), as a product with ones: several times faster than a sum over the first axis."""
    if a.dim() == 4 and a.is_contiguous(memory_format=torch.channels_last):
        rows = a.permute(0, 2, 3, 1)
        return (a.new_ones(1, len(a)) @ rows.reshape(len(a), -1)).view(1, *rows.shape[1:]).permute(0, 3, 1, 2)
    return (a.new_ones(1, len(a)) @ a.reshape(len(a), -1)).view(1, *a.shape[1:])
