"""Sums over images of something that the verifier says of every neuron."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from lingraft.attack.evaluation import evaluating
from lingraft.data import Batches, ImageSet
from lingraft.device import device_of
from lingraft.progress import progress
from lingraft.solver.network import Network
from lingraft.solver.nodes import Site

#: (network, images (N, *shape), labels (N,)) → sums over these images, of the site's shape, by position of the first
OfBatch = Callable[[Network, Tensor, Tensor], Mapping[int, Tensor]]


def sum_over_images(what: str, model: nn.Module, data: ImageSet, batch: int, of_batch: OfBatch) -> dict[str, Tensor]:
    """Site name → the sums over all images, float64, of the neuron shape, on the CPU; `what` names the progress bar."""
    device = device_of(model)
    with evaluating(model):
        network = Network.from_module(model, tuple(data.images.shape[1:]))
    shapes = {i: network.nodes[i].shape for i in network.bends}
    sums = {i: torch.zeros(shape, dtype=torch.float64, device=device) for i, shape in shapes.items()}
    batches = Batches(data, batch, device=device)
    with progress(what, len(batches)) as advance, torch.no_grad():
        for images, labels in batches:
            for i, values in of_batch(network, images, labels).items():
                sums[i] += values
            advance()
    named = {network.nodes[i].name: sums[i] for i in network.bends}
    return {name: network.outside(total[None])[0].contiguous().cpu() for name, total in named.items()}


def sites_of(network: Network) -> dict[int, Site]:
    """The sites by their position in the network."""
    return {i: node for i in network.sites if isinstance(node := network.nodes[i], Site)}
