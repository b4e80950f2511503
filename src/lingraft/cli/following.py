"""Processes that torchrun starts beside the first one: they work along, but do not print."""

import os
import sys
import traceback
from types import TracebackType


def is_follower() -> bool:
    """Whether this process is one of several that torchrun started, and not the first."""
    return int(os.environ.get("RANK", "0")) > 0 and int(os.environ.get("WORLD_SIZE", "1")) > 1


def be_silent_if_following() -> None:
    """Print nothing from now on but tracebacks, unless the first process is gone: then it has said why."""
    if not is_follower():
        return
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (until this process ends)

    def last_words(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if "onnection closed by peer" not in str(error) and "onnection reset by peer" not in str(error):
            traceback.print_exception(kind, error, trace, file=sys.__stderr__)

    sys.excepthook = last_words
