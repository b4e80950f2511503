"""How much is grafted when, if not all at once."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GradualSchedule:
    """The cubic schedule over the first half of the epochs: many neurons early, few late.

    Paper: Zhu and Gupta, "To prune, or not to prune", 2017; used in the grafting paper, Section "One-shot versus
    gradually grafting". `start` is the ratio that is grafted already.
    """

    ratio: float
    epochs: int
    start: float = 0.0

    @property
    def steps(self) -> int:
        """Number of epochs, the first ones, that begin with grafting more neurons."""
        return max(1, self.epochs // 2)

    def at(self, epoch: int) -> float:
        """The ratio grafted in all when this epoch (counted from 0) begins."""
        left = max(0.0, 1 - (epoch + 1) / self.steps)
        return self.ratio + (self.start - self.ratio) * left**3
