"""How far the neurons of a site are from linear between their bounds, by the gap of its activation."""

from torch import Tensor

from lingraft.solver.nodes import Site

#: A smooth neuron is called unstable where its gap is more than this share of its rise.
UNSTABLE_GAP = 0.01


def nonlinearity(site: Site, lower: Tensor, upper: Tensor) -> Tensor:
    """From 0 (linear) to 1, of the bounds' shape (…, *site): grafted neurons 0, an unstable ReLU 1, a stable one 0.

    A smooth neuron, which is never quite linear, has its gap as a share of its rise.
    """
    activation = site.activation
    if activation.pieces is not None:
        return ((lower < 0) & (upper > 0) & ~site.grafted).double()
    return (activation.gap(lower, upper) / activation.rise).clamp(max=1.0).masked_fill(site.grafted, 0.0)


def unstable(site: Site, lower: Tensor, upper: Tensor) -> Tensor:
    """What UNR counts: ReLUs that can take both signs, smooth neurons with a gap of more than 1 % of their rise."""
    return nonlinearity(site, lower, upper) > UNSTABLE_GAP
