"""What happened in each epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lingraft.errors import LingraftError

#: A collapse is a robust accuracy below this part of the best one so far, and at least this much below it,
#: at a training loss that did not grow.
COLLAPSED_PART, COLLAPSED_BY = 0.5, 0.1


@dataclass(frozen=True)
class Epoch:
    """One line of history.jsonl; `epoch` counts from 1, accuracies are those of the validation images, in [0, 1]."""

    epoch: int
    loss: float
    sa: float
    ra: float
    lr: float
    seconds: float
    #: robust accuracy collapsed although the training loss did not grow: catastrophic overfitting (Wong et al. 2020)
    overfitting: bool = False
    #: share of the validation images (those of `ra`) that intervals certify; None where it was not measured
    certified: float | None = None
    #: what else the loss reports, averaged over the epoch
    figures: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """A flat record."""
        record = asdict(self)
        figures = record.pop("figures")
        if self.certified is None:
            del record["certified"]
        return {**record, **figures}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Epoch":
        """From the record that `as_dict` gave."""
        if not isinstance(record, Mapping) or not all(isinstance(value, int | float) for value in record.values()):
            raise LingraftError(f"a record of the training history is damaged: {record}.")
        known = {name: record[name] for name in cls.__dataclass_fields__ if name != "figures" and name in record}
        try:
            return cls(**known, figures={name: value for name, value in record.items() if name not in known})
        except TypeError as error:
            raise LingraftError(f"a record of the training history is incomplete: {dict(record)}.") from error

    def __str__(self) -> str:
        certified = "" if self.certified is None else f", certified by intervals {self.certified:.2%}"
        return (
            f"epoch {self.epoch}: loss {self.loss:.4f}, SA {self.sa:.2%}, RA {self.ra:.2%}{certified}"
            f" on validation images, lr {self.lr:.4g}, {self.seconds:.1f} s"
        )


@dataclass(frozen=True)
class History:
    """The epochs so far, in order; `resumed` is how many of them an earlier call had already done."""

    epochs: Sequence[Epoch]
    resumed: int = 0
    #: weights of earlier epochs, counted from 0, are not kept: the network was not what it is meant to be yet
    keep_from: int = 0
    #: whether what intervals certify counts before the robust accuracy
    keep_certified: bool = False

    @property
    def last(self) -> Epoch:
        """The latest epoch."""
        return self.epochs[-1]

    @property
    def best(self) -> Epoch:
        """The epoch whose weights are kept: highest robust accuracy, then standard accuracy, then the earliest.

        With `keep_certified`, what intervals certify counts first.
        """
        candidates = self.epochs[self.keep_from :] or self.epochs[-1:]

        def order(epoch: Epoch) -> tuple[float, ...]:
            first = (epoch.certified or 0.0,) if self.keep_certified else ()
            return (*first, epoch.ra, epoch.sa, -epoch.epoch)

        return max(candidates, key=order)


def has_collapsed(ra: float, loss: float, earlier: Sequence[Epoch]) -> bool:
    """Whether an epoch with this robust accuracy and training loss looks like catastrophic overfitting."""
    if not earlier:
        return False
    best = max(earlier, key=lambda epoch: epoch.ra)
    return ra < COLLAPSED_PART * best.ra and ra <= best.ra - COLLAPSED_BY and loss <= best.loss
