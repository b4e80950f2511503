"""Which neurons to graft: argmax γ·r_u − r_s, in stages of falling γ (the paper, Section 4, step 3)."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from lingraft.errors import LingraftError
from lingraft.grafting.ranking import NeuronValues, flatten, unflatten

#: The paper's stages: an equal share of the neurons is chosen with each γ, in this order.
GAMMAS = (2.0, 1.5, 1.0, 0.0)


def select(
    instability: NeuronValues,
    significance: NeuronValues,
    ratio: float,
    gammas: Sequence[float] = GAMMAS,
    grafted: Mapping[str, Tensor] | None = None,
    *,
    of_ratio: float | None = None,
) -> dict[str, Tensor]:
    """The mask of round(ratio × neurons) neurons: site name → boolean tensor, True where to graft.

    `instability` and `significance` are ranks r_u and r_s in [0, 1] (see `rank`); each stage takes its share of the
    neurons with the highest γ·r_u − r_s that are left, γ = ∞ those with the highest r_u; equal values go to the neuron
    that comes first. So γ = 0 is −r_s, 1 is r_u − r_s, 2 is 2r_u − r_s, ∞ is r_u.

    Neurons in `grafted` are part of the result, count as chosen by the earliest stages, and are never taken back.
    With `of_ratio` the stages are those of choosing that larger ratio, of which this call does the part up to `ratio`
    (gradual grafting).
    """
    if {n: tuple(t.shape) for n, t in instability.items()} != {n: tuple(t.shape) for n, t in significance.items()}:
        raise LingraftError("instability and significance must have the same sites in the same shapes.")
    if not gammas or any(math.isnan(gamma) or gamma < 0 for gamma in gammas):
        raise LingraftError(f"γ must be one number or more, each 0 or above (inf for r_u alone), not {list(gammas)}.")
    unstable, significant = flatten(instability), flatten(significance)
    for what, ranks in (("instability", unstable), ("significance", significant)):
        if not (np.isfinite(ranks).all() and ranks.min() >= 0 and ranks.max() <= 1):
            raise LingraftError(f"the {what} must be ranks in [0, 1]. Make them with lingraft.grafting.rank.")
    count, total = _count(ratio, len(unstable)), _count(ratio if of_ratio is None else of_ratio, len(unstable))
    if total < count:
        raise LingraftError(f"cannot graft {ratio:.0%} as a part of {of_ratio:.0%} of the neurons.")
    chosen = np.zeros(len(unstable), dtype=bool) if grafted is None else _flat_mask(grafted, instability)
    present = int(chosen.sum())
    if present > count:
        raise LingraftError(
            f"{present} of {len(chosen)} neurons are grafted already, more than {ratio:.0%}. Choose a higher ratio."
        )
    for stage, gamma in enumerate(gammas):
        end = min(count, round(total * (stage + 1) / len(gammas)))
        wanted = end - present
        if wanted <= 0:
            continue
        value = unstable if math.isinf(gamma) else gamma * unstable - significant
        order = np.argsort(np.where(chosen, np.inf, -value), kind="stable")
        chosen[order[:wanted]] = True
        present = end
    return unflatten(chosen, {name: tuple(values.shape) for name, values in instability.items()})


def _count(ratio: float, neurons: int) -> int:
    if not (math.isfinite(ratio) and 0 <= ratio <= 1):
        raise LingraftError(f"the ratio of neurons to graft must lie between 0 and 1, not {ratio}.")
    return round(ratio * neurons)


def _flat_mask(grafted: Mapping[str, Tensor], values: NeuronValues) -> np.ndarray:
    """`grafted` in the order of `values`; sites that it does not name have no grafted neuron."""
    unknown = [name for name in grafted if name not in values]
    if unknown:
        raise LingraftError(f"the site {unknown[0]!r} is grafted but has no scores. Score all sites.")
    parts = []
    for name, tensor in values.items():
        mask = grafted.get(name)
        if mask is not None and mask.shape != tensor.shape:
            raise LingraftError(
                f"the mask of site {name!r} has shape {tuple(mask.shape)}, its scores have {tuple(tensor.shape)}."
            )
        parts.append(np.zeros(tensor.numel(), dtype=bool) if mask is None else mask.cpu().numpy().ravel())
    return np.concatenate(parts)
