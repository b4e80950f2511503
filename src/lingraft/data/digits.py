"""scikit-learn's handwritten digits: 1,797 images of 8×8 pixels that come with the package; no download."""

from pathlib import Path

import numpy as np
import torch

from lingraft.data.images import ImageSet
from lingraft.data.specs import DataSpec


def read(part: str, root: Path) -> ImageSet:
    """The `train` or `test` part: pixels 0 … 16 become float32 in steps of 1/16; `root` is not used.

    The package has no split of its own. Ours is fixed: in every class, of each ten images in their order the first
    seven are for training, the eighth for validation, the last two for testing. The `train` part holds the training
    images and then the validation images, as the files of the other data sets do.
    """
    from sklearn.datasets import load_digits  # slow to import

    flat, labels = load_digits(return_X_y=True)
    rank = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        of_class = np.flatnonzero(labels == label)
        rank[of_class] = np.arange(len(of_class)) % 10
    if part == "train":
        chosen = np.concatenate([np.flatnonzero(rank < 7), np.flatnonzero(rank == 7)])
    else:
        chosen = np.flatnonzero(rank > 7)
    pixels = torch.from_numpy(flat[chosen].astype(np.float32) / 16)
    return ImageSet(pixels.view(-1, 1, 8, 8), torch.from_numpy(labels[chosen].astype(np.int64)))


SPEC = DataSpec(
    name="digits",
    title="scikit-learn's handwritten digits",
    input_shape=(1, 8, 8),
    class_names=tuple("0123456789"),
    mean=(0.3052,),
    std=(0.3762,),
    eps=0.1,  # that of MNIST
    read=read,
    validation_images=178,
    train_images=1_444,
    test_images=353,
)
