"""What a network computes at one point, and what rounding can change: the checker's own reading of a file.

Points are of the inner shape, as `inner` makes them; outputs are vectors.
"""

import numpy as np

from lingraft.checker.network import Network
from lingraft.checker.nodes import Input, Site
from lingraft.checker.rounding import UNDERFLOW, UNIT, Array, down, gamma, up


def outputs(network: Network, point: Array) -> Array:
    """In float64."""
    values: list[Array] = []
    for node in network.nodes:
        values.append(point if isinstance(node, Input) else node.forward(*(values[i] for i in node.inputs)))
    return values[-1].reshape(-1)


def enclosure(network: Network, point: Array) -> tuple[Array, Array]:
    """Numbers between which the real outputs lie, whatever was rounded."""
    values: list[Array] = []
    errors: list[Array] = []
    for node in network.nodes:
        before, wrong = [values[i] for i in node.inputs], [errors[i] for i in node.inputs]
        if isinstance(node, Input):
            values.append(point)
            errors.append(np.zeros_like(point))
            continue
        sizes = [np.abs(value) + error for value, error in zip(before, wrong, strict=True)]
        if isinstance(node, Site):
            slopes = np.abs(node.bend) + np.abs(node.slope)
            error = slopes * wrong[0] + gamma(8) * (slopes * sizes[0] + np.abs(node.shift))
        else:
            own = gamma(node.terms) * (node.magnitude(*sizes) + np.abs(node.offset()))
            error = node.magnitude(*wrong) * (1 + gamma(node.terms)) + own + node.doubt(sizes[0])
        values.append(node.forward(*before))
        errors.append(error * (1 + 16 * UNIT) + UNDERFLOW)
    value, error = values[-1].reshape(-1), errors[-1].reshape(-1)
    return down(value - error), up(value + error)


def noise(network: Network, point: Array, unit: float, random: np.random.Generator) -> Array:
    """How far from `outputs` those of a program typically are that rounds by `unit`.

    Every value on the way is made wrong at random, by up to 8 units times the sum of the sizes of its terms, and then
    by the opposite of that. Such errors are passed on and cancel as those of the program do, which a bound of the worst
    case could not say.
    """
    seed = int(random.integers(2**32))
    plain, *both = (_disturbed(network, point, side * 8 * unit, np.random.default_rng(seed)) for side in (0, 1, -1))
    return np.max([np.abs(one - plain) for one in both], axis=0)


def _disturbed(network: Network, point: Array, error: float, random: np.random.Generator) -> Array:
    values: list[Array] = []
    for node in network.nodes:
        if isinstance(node, Input):
            values.append(point)
            continue
        before = [values[i] for i in node.inputs]
        sizes = [np.abs(value) for value in before]
        if isinstance(node, Site):
            size = (np.abs(node.bend) + np.abs(node.slope)) * sizes[0] + np.abs(node.shift)
        else:  # doubts are in units of float64, and may say more than the constants themselves
            size = node.magnitude(*sizes) + np.abs(node.offset()) + node.doubt(sizes[0]) / UNIT
        values.append(node.forward(*before) + error * random.uniform(-1, 1, node.shape) * size)
    return values[-1].reshape(-1)
