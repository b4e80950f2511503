"""Where work is done: in this process, in several on this machine, or on a Ray cluster."""

from dataclasses import dataclass
from importlib.util import find_spec

from lingraft.errors import LingraftError


@dataclass(frozen=True)
class Place:
    """The number of `workers`: 0 is this process; None one for each core, or this process where that is enough.

    With `ray`, the address of a Ray cluster, they are actors there (None: one for each CPU), and a limit of memory is
    that of each node.
    """

    workers: int | None = None
    ray: str | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and (not isinstance(self.workers, int) or self.workers < 0):
            raise LingraftError(f"workers must be 0 (in this process) or a number of processes, not {self.workers}.")
        if self.ray is not None:
            if self.workers == 0:
                raise LingraftError("on Ray there must be at least one worker. Leave workers out for one on each CPU.")
            if find_spec("ray") is None:
                raise LingraftError("Ray is not installed. Use pip install 'lingraft[ray]', here and on every node.")


#: Where nothing else was said.
ANYWHERE = Place()

#: In this process.
HERE = Place(0)
