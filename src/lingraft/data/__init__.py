"""The data sets: digits (embedded), MNIST, SVHN and CIFAR-10, read from their official files, and batches of them."""

from lingraft.data.batches import Batches
from lingraft.data.images import ImageSet
from lingraft.data.load import SPLITS, load
from lingraft.data.places import data_root
from lingraft.data.specs import DATASETS, DataSpec

__all__ = ["DATASETS", "SPLITS", "Batches", "DataSpec", "ImageSet", "data_root", "load"]
