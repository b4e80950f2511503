"""Grafted sites in standard ONNX operations, so that any verifier can read them."""

from typing import Literal

import torch
from torch import Tensor

from lingraft.formats.onnx_activations import write_activation
from lingraft.formats.onnx_layers import Affine, Shape, write_gemm
from lingraft.formats.onnx_writer import OnnxWriter, Value, named
from lingraft.model.grafted_activation import GraftedActivation

#: Where the mask stands: act(x)·keep + … ("output") or act(x·keep) + … ("input"); "batchnorm" is like "output", but
#: with all scales and shifts written as BatchNormalization.
Form = Literal["output", "input", "batchnorm"]
FORMS: tuple[Form, ...] = ("output", "input", "batchnorm")


def write_grafted(to: OnnxWriter, site: GraftedActivation, shape: Shape, x: Value, absorb: bool, form: Form) -> Value:
    """Write a grafted site of x; `absorb` says that nothing else uses x, so that its weights may be changed.

    With m the mask, a the slopes and b the intercepts this is act(x)·(1−m) + x·(m·a) + m·b, or act(x·(1−m)) + … in the
    form "input", which exists if act(0) = 0, so not for a sigmoid. A site without grafted neurons is the
    plain activation, one with nothing else a scale and a shift; behind a fully connected layer the masks go into the
    weights of two layers, one bent and one straight.
    """
    slope, intercept = (tensor.detach() for tensor in site.line())
    keep = (~site.mask).to(slope.dtype)
    if not site.grafted:
        return named(shape, write_activation(to, site.base, x.name, len(shape)))
    bends, through_zero = bool(keep.any()), site.base.at_zero == 0
    if absorb and isinstance(x, Affine) and through_zero:
        straight = write_gemm(to, f"{to.scope}.line", x.source, *_scaled(x, slope, intercept))
        if not bends:
            return named(shape, straight)
        kept = write_gemm(to, f"{to.scope}.kept", x.source, *_scaled(x, keep, None))
        bent = write_activation(to, site.base, kept, len(shape))
        return to.value(shape, "Add", bent, straight)
    terms = []
    if bends and form == "input" and through_zero:
        masked = to.node("Mul", x.name, to.weight("keep", keep[None]))
        terms.append(write_activation(to, site.base, masked, len(shape)))
    elif bends:
        bent = write_activation(to, site.base, x.name, len(shape))
        terms.append(to.node("Mul", bent, to.weight("keep", keep[None])))
    if slope.any() or not terms:
        terms.append(to.node("Mul", x.name, to.weight("slope", slope[None])))
    result = terms[0] if len(terms) == 1 else to.node("Add", *terms)
    if intercept.any():
        result = to.node("Add", result, to.weight("intercept", intercept[None]))
    return named(shape, result)


def _scaled(x: Affine, factor: Tensor, shift: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weight and bias of factor·x + shift, one factor an output."""
    bias = torch.zeros_like(factor) if x.bias is None else factor * x.bias
    return factor[:, None] * x.weight, bias if shift is None else bias + shift
