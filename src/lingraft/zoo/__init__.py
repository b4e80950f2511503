"""The networks of the paper (Section 5, "Datasets and architectures"), and a small one for digits."""

from lingraft.zoo.build import MODELS, ModelSpec, build, count_neurons, count_parameters
from lingraft.zoo.layers import Normalize

__all__ = ["MODELS", "ModelSpec", "Normalize", "build", "count_neurons", "count_parameters"]
