"""Where the official files are, and how to know that they arrived whole."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedFile:
    """A file as published: where it belongs in the data folder, its size in bytes, and its md5 sum."""

    path: str
    size: int
    md5: str

    @property
    def name(self) -> str:
        """Its name at the source."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Source:
    """The files of a data set, and the addresses that all have them, the first choice first."""

    addresses: tuple[str, ...]
    files: tuple[PublishedFile, ...]


SOURCES: dict[str, Source] = {
    "mnist": Source(
        # yann.lecun.com, the first home of MNIST, no longer gives out the files; these two hold them unchanged
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        (
            PublishedFile("mnist/train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            PublishedFile("mnist/train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
            PublishedFile("mnist/t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
            PublishedFile("mnist/t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
    ),
    "svhn": Source(
        ("http://ufldl.stanford.edu/housenumbers/", "https://ufldl.stanford.edu/housenumbers/"),
        (
            PublishedFile("svhn/train_32x32.mat", 182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373"),
            PublishedFile("svhn/test_32x32.mat", 64_275_384, "eb5a983be6a315427106f1b164d9cef3"),
        ),
    ),
    "cifar10": Source(
        ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
        (PublishedFile("cifar-10-binary.tar.gz", 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"),),
    ),
}
