"""From raw scores to ranks over all neurons of the network (the paper, Section 4, steps 1 and 2)."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from lingraft.errors import LingraftError

#: One value a neuron: site name → tensor of the neuron shape.
NeuronValues = Mapping[str, Tensor]


def rank(raw: NeuronValues) -> dict[str, Tensor]:
    """Rank all neurons of the network together: 0 for the lowest score, 1 for the highest, ties share their mean rank.

    Shape: for each site a tensor of the neuron shape → the same, float64 in [0, 1]. A network of one rank has 0.5.
    """
    flat = flatten(raw)
    if not np.isfinite(flat).all():
        raise LingraftError("scores are NaN or infinite. Check the weights of the model and the images.")
    _, group, sizes = np.unique(flat, return_inverse=True, return_counts=True)
    places = (np.cumsum(sizes) - (sizes + 1) / 2)[group]  # from 0; the middle one of a group of ties
    ranks = places / (len(flat) - 1) if len(flat) > 1 else np.full(1, 0.5)
    return unflatten(ranks, {name: tuple(values.shape) for name, values in raw.items()})


def flatten(values: NeuronValues) -> np.ndarray:
    """All neurons of the network in one row: sites in the order given, neurons in the order of the tensor."""
    if not values:
        raise LingraftError("there are no sites to score. Take them from lingraft.sites(model, input_shape).")
    parts = [tensor.detach().cpu().numpy().ravel() for tensor in values.values()]
    empty = [name for name, part in zip(values, parts, strict=True) if not part.size]
    if empty:
        raise LingraftError(f"the site {empty[0]!r} has no neurons. Leave it out.")
    return np.concatenate(parts)


def unflatten(flat: np.ndarray, shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """The inverse of `flatten`."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    parts = np.split(flat, ends[:-1])
    return {
        name: torch.from_numpy(np.ascontiguousarray(part)).view(*shape)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }
