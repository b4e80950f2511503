"""The networks of the paper (Section 5, "Datasets and architectures"), a small one for digits, and halved controls."""

from lingraft.model.zoo.build import MODELS, ModelSpec, build, count_neurons, count_parameters
from lingraft.model.zoo.layers import Normalize

__all__ = ["MODELS", "ModelSpec", "Normalize", "build", "count_neurons", "count_parameters"]
