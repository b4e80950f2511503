"""Lower bounds of the margins over domains, from multipliers: the verifier's inner loop.

A domain is the region with some taps restricted to one side of a split. Domains are columns: every tensor over taps is
(T, B). From the last site to the first, with q the coefficient on h = act(z),

    λ = α·[q]₊ + s·[q]₋ − β·σ       (lower line slope α, upper line s·z + t; σ = ±1 where split, else 0)
    c += [q]₋·t + λ·r + …            p += λP        q += λQ
    bound = c + p·center − |p|·radius

Any α ∈ [0, 1] and β ≥ 0 give a sound bound (α,β-CROWN, Xu et al. 2021, Wang et al. 2021). The gradient has a closed
form: with x* the minimizer, z* and h* follow forward, and ∂bound/∂λ = z*, so autograd is not needed.
"""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from lingraft.verification.collapse import Collapsed
from lingraft.verification.relaxation import Lines, relax, relax_relu


@dataclass
class Domains:
    """A batch of domains, one a column: bounds of the taps (T, B), splits, multipliers, and the margin each is about.

    `split` is +1 where the lower bound of the tap is a split (z ≥ lower), −1 where the upper one is (z ≤ upper).
    """

    margin: Tensor
    lower: Tensor
    upper: Tensor
    split: Tensor
    alpha: Tensor
    beta: Tensor

    def __len__(self) -> int:
        return len(self.margin)

    def select(self, columns: Tensor) -> "Domains":
        """Some of the domains."""
        return Domains(*(getattr(self, f.name)[..., columns] for f in fields(self)))

    def to(self, dtype: torch.dtype) -> "Domains":
        """Bounds and multipliers in another precision."""
        names = ("lower", "upper", "alpha", "beta")
        return replace(self, **{name: getattr(self, name).to(dtype) for name in names})


@dataclass
class Evaluation:
    """Bounds (B,) and what the branching looks at: q, z* (T, B), the lines, and the minimizer x* (n, B)."""

    bound: Tensor
    q: Tensor
    z: Tensor
    lines: Lines
    minimizer: Tensor


class Dual:
    """The collapsed network in one precision, ready to bound batches of domains."""

    def __init__(self, collapsed: Collapsed, dtype: torch.dtype):
        self.dtype = dtype
        self.taps = [(t.first, t.last, t.P.to(dtype), t.Q.to(dtype), t.r.to(dtype)[:, None]) for t in collapsed.taps]
        self.kinds = [(t.first, t.last, t.kind) for t in collapsed.taps]
        self.smooth = any(t.kind != "relu" for t in collapsed.taps)
        self.p, self.q, self.c = collapsed.p.to(dtype), collapsed.q.to(dtype), collapsed.c.to(dtype)
        self.center, self.radius = collapsed.center.to(dtype)[:, None], collapsed.radius.to(dtype)[:, None]
        self.relu = torch.zeros(collapsed.count, 1, dtype=torch.bool, device=self.q.device)
        for first, last, kind in self.kinds:
            self.relu[first:last] = kind == "relu"

    def lines(self, domains: Domains) -> Lines:
        """Lines of the taps in each domain; the lower ones of ReLU taps that stay open are α·z."""
        lower, upper = domains.lower, domains.upper
        if not self.smooth:
            lines = relax_relu(lower, upper)
        else:
            parts = [relax(kind, lower[a:b].double(), upper[a:b].double()) for a, b, kind in self.kinds]
            lines = Lines(*(torch.cat(tensors).to(self.dtype) for tensors in zip(*parts, strict=True)))
        return lines._replace(lower_slope=torch.where(self.open(domains), domains.alpha, lines.lower_slope))

    def open(self, domains: Domains) -> Tensor:
        """ReLU taps (T, B) that are still unstable in the domain: those whose α is free."""
        return self.relu & (domains.lower < 0) & (domains.upper > 0)

    def backward(self, domains: Domains, lines: Lines) -> tuple[Tensor, Tensor, Tensor]:
        """q (T, B), p (n, B) and the bound (B,)."""
        q, p, c = self.q[:, domains.margin], self.p[:, domains.margin], self.c[domains.margin]
        shift = domains.split * domains.beta
        for first, last, P, Q, r in reversed(self.taps):
            if first == last:
                continue
            some = q[first:last]
            positive, negative = some.clamp(min=0), some.clamp(max=0)
            slope = torch.addcmul(positive * lines.lower_slope[first:last], negative, lines.upper_slope[first:last])
            slope -= shift[first:last]
            c = c + (negative * lines.upper_intercept[first:last]).sum(0) + (slope * r).sum(0)
            if self.smooth:
                c = c + (positive * lines.lower_intercept[first:last]).sum(0)
            if first:
                q[:first] += Q.transposed_times(slope)
            p = p + P.transposed_times(slope)
        if self.smooth:  # the side of a split: β·lower for z ≥ lower, −β·upper for z ≤ upper (0 for ReLU)
            edge = torch.where(domains.split > 0, domains.lower, domains.upper)
            c = c + torch.where(domains.split != 0, shift * edge, 0.0).sum(0)
        return q, p, c + (p * self.center).sum(0) - (p.abs() * self.radius).sum(0)

    def forward(self, q: Tensor, p: Tensor, lines: Lines) -> tuple[Tensor, Tensor]:
        """The minimizer x* (n, B), and z* (T, B) that it gives on the lines that were used."""
        x = self.center - self.radius * p.sign()
        z, h = torch.empty_like(q), torch.empty_like(q)
        for first, last, P, Q, r in self.taps:
            if first == last:
                continue
            some = P.times(x) + r
            if first:
                some += Q.times(h[:first])
            z[first:last] = some
            below = q[first:last] >= 0
            slope = torch.where(below, lines.lower_slope[first:last], lines.upper_slope[first:last])
            shift = torch.where(below, lines.lower_intercept[first:last], lines.upper_intercept[first:last])
            h[first:last] = torch.addcmul(shift, slope, some)
        return x, z

    def bound(self, domains: Domains) -> Tensor:
        """Bounds (B,) with the multipliers that the domains carry."""
        return self.backward(domains, self.lines(domains))[2]

    def evaluate(self, domains: Domains) -> Evaluation:
        """Bounds with the multipliers that the domains carry, and what the branching needs."""
        lines = self.lines(domains)
        q, p, bound = self.backward(domains, lines)
        x, z = self.forward(q, p, lines)
        return Evaluation(bound, q, z, lines, x)
