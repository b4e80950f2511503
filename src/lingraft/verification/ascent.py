"""Better multipliers: Adam on α and β, keeping the best of every domain."""

import torch
from torch import Tensor

from lingraft.verification.dual import Domains, Dual


def improve(
    dual: Dual, domains: Domains, steps: int, rate: float = 0.1, decay: float = 0.98, enough: float = 0.0
) -> tuple[Tensor, Domains]:
    """Best bounds (B,) found in `steps` steps and the domains with the multipliers that give them.

    Stops early when every bound is above `enough`.
    """
    current = Domains(
        domains.margin, domains.lower, domains.upper, domains.split, domains.alpha.clone(), domains.beta.clone()
    )
    best = torch.full((len(domains),), -torch.inf, dtype=dual.dtype, device=domains.lower.device)
    alpha, beta = domains.alpha.clone(), domains.beta.clone()
    open_ = dual.open(domains)
    sign = domains.split.to(dual.dtype)
    moments = [torch.zeros_like(alpha) for _ in range(4)]
    lines = dual.lines(current)
    for step in range(1, steps + 1):
        lines = lines._replace(lower_slope=torch.where(open_, current.alpha, lines.lower_slope))
        q, p, bound = dual.backward(current, lines)
        better = bound > best
        best = torch.where(better, bound, best)
        alpha = torch.where(better, current.alpha, alpha)
        beta = torch.where(better, current.beta, beta)
        if step == steps or bool((best > enough).all()):
            break
        _, z = dual.forward(q, p, lines)
        gradient_alpha = torch.where(open_, q.clamp(min=0) * z, 0.0)
        gradient_beta = -sign * z
        if dual.smooth:
            edge = torch.where(domains.split > 0, domains.lower, domains.upper)
            gradient_beta += torch.where(domains.split != 0, sign * edge, 0.0)
        _adam(current.alpha, gradient_alpha, moments[0], moments[1], step, rate)
        _adam(current.beta, gradient_beta, moments[2], moments[3], step, rate)
        current.alpha.clamp_(0, 1)
        current.beta.clamp_(min=0)
        rate *= decay
    current.alpha, current.beta = alpha, beta
    return best, current


def _adam(value: Tensor, gradient: Tensor, first: Tensor, second: Tensor, step: int, rate: float) -> None:
    """One ascending step of Adam (Kingma & Ba 2015), in place."""
    first.lerp_(gradient, 0.1)
    second.lerp_(gradient.square_(), 0.001)
    scale = (second / (1 - 0.999**step)).sqrt_().add_(1e-8)
    value.addcdiv_(first, scale, value=rate / (1 - 0.9**step))
