"""Networks as the checker sees them, without a file."""

import numpy as np
from exact_rational import Layers

from lingraft.checker.network import Network
from lingraft.checker.nodes import Dense, Input, Node, Site


def layered(layers: Layers) -> Network:
    """Fully connected, with ReLU between layers."""
    nodes: list[Node] = [Input([], (layers[0][0].shape[1],))]
    for i, (weight, bias) in enumerate(layers):
        size = len(bias)
        nodes.append(Dense([len(nodes) - 1], (size,), nodes[-1].shape, weight.astype(float), bias.astype(float)))
        if i < len(layers) - 1:
            nodes.append(Site([len(nodes) - 1], (size,), i, np.ones(size), np.zeros(size), np.zeros(size)))
    return Network(nodes, nodes[0].shape, "0" * 64, len(layers) - 1)
