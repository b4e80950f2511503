"""What the data sets are: shapes, classes, normalization, splits."""

from dataclasses import dataclass

_DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class DataSpec:
    """A data set. `mean` and `std`, per channel and of pixels in [0, 1], are for the first layer of its models."""

    name: str
    title: str
    input_shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    #: images of the published training and test file
    train_images: int
    test_images: int
    #: how many of the last images of the training file are for validation
    validation_images: int
    #: whether training uses random crops (padding 4) and horizontal flips
    augment: bool = False

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)


#: Splits and normalization of MNIST, SVHN and CIFAR-10 are those of the original experiments (paper, Section 5).
DATASETS: dict[str, DataSpec] = {
    spec.name: spec
    for spec in (
        DataSpec(
            name="digits",
            title="scikit-learn's handwritten digits",
            input_shape=(1, 8, 8),
            class_names=_DIGITS,
            mean=(0.3052,),
            std=(0.3762,),
            train_images=1_444,
            validation_images=178,
            test_images=353,
        ),
        DataSpec(
            name="mnist",
            title="MNIST",
            input_shape=(1, 28, 28),
            class_names=_DIGITS,
            mean=(0.0,),
            std=(1.0,),
            train_images=60_000,
            validation_images=6_000,
            test_images=10_000,
        ),
        DataSpec(
            name="svhn",
            title="SVHN, 32×32 cropped digits",
            input_shape=(3, 32, 32),
            class_names=_DIGITS,
            mean=(0.4377, 0.4438, 0.4728),
            std=(0.1201, 0.1231, 0.1052),
            train_images=73_257,
            validation_images=5_000,
            test_images=26_032,
        ),
        DataSpec(
            name="cifar10",
            title="CIFAR-10",
            input_shape=(3, 32, 32),
            class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2023, 0.1994, 0.2010),
            train_images=50_000,
            validation_images=5_000,
            test_images=10_000,
            augment=True,
        ),
    )
}
