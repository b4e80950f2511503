"""The data sets: digits (embedded), MNIST, SVHN and CIFAR-10, read from their official files, and those registered."""

from lingraft.data.batches import Batches
from lingraft.data.fetch import fetch
from lingraft.data.images import ImageSet
from lingraft.data.inventory import Holding, inventory
from lingraft.data.load import SPLITS, is_known, load, register, spec_of
from lingraft.data.npz import is_file
from lingraft.data.places import data_root
from lingraft.data.specs import DATASETS, DataSpec

__all__ = [
    "DATASETS",
    "SPLITS",
    "Batches",
    "DataSpec",
    "Holding",
    "ImageSet",
    "data_root",
    "fetch",
    "inventory",
    "is_file",
    "is_known",
    "load",
    "register",
    "spec_of",
]
