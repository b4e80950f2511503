"""What is called after each epoch: a line of text, early stopping, TensorBoard, or a function of your own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft.errors import LingraftError
from lingraft.progress import console
from lingraft.training.history import History

#: on_epoch(history), when the epoch `history.last` is over and kept. If it returns True, training ends there.
OnEpoch = Callable[[History], Any]


def print_epoch(history: History) -> None:
    """One line on standard error, above the bar if there is one."""
    console.print(str(history.last), highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class EarlyStopping:
    """Ends training when the best epoch, whose weights are kept, is `patience` epochs ago.

    It looks at the whole history, so that a run that goes on after a stop ends where it would have.
    """

    patience: int = 5

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise LingraftError(f"patience is a number of epochs, at least 1, not {self.patience}.")

    def __call__(self, history: History) -> bool:
        return history.last.epoch - history.best.epoch >= self.patience


class TensorBoard:
    """Writes the figures of each epoch to a folder that `tensorboard --logdir FOLDER` shows."""

    def __init__(self, folder: str | Path):
        try:
            # tensorboard is not needed for anything else, so it need not be installed
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise LingraftError("TensorBoard is not installed. Install it: pip install tensorboard") from error
        self.folder, self.make = Path(folder), SummaryWriter
        self.writer: Any = None

    def __call__(self, history: History) -> None:
        if self.writer is None:  # only now, so that nothing is written where training is refused
            self.writer = self.make(str(self.folder))
        figures = history.last.as_dict()
        number = figures.pop("epoch")
        for name, value in figures.items():
            self.writer.add_scalar(name, float(value), number)
        self.writer.flush()


def as_callbacks(on_epoch: OnEpoch | Sequence[OnEpoch]) -> list[OnEpoch]:
    """One or several as a list; what cannot be called is refused."""
    callbacks = [on_epoch] if callable(on_epoch) else on_epoch
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise LingraftError(f"on_epoch must be a function of the history, or a list of such, not {on_epoch!r}.")
    return list(callbacks)
