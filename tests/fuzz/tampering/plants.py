"""Bugs for the checker, of the kind that a slip of the pen makes: the campaign has to find each of them."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

from lingraft.checker import boxes, check, clip, dual, network, tree


def _rewrite(module: ModuleType, function: str, old: str, new: str) -> Any:
    """A function with some of its text changed."""
    source = inspect.getsource(getattr(module, function))
    if old not in source:
        raise SystemExit(f"{function} no longer says {old!r}: plant the bug elsewhere")
    exec(source.replace(old, new), vars(module))  # the same text but for one word
    return getattr(module, function)


def _breakpoint() -> None:
    """The value at 0 is forgotten where a ReLU is open."""
    wrong = _rewrite(dual, "below", "np.minimum(least, 0.0, out=least, where=open_)", "pass")
    tree.below = clip.below = wrong  # type: ignore[attr-defined]


def _slope() -> None:
    """Leaky ReLUs that leak a little less than the file says."""
    right = network.Builder.bent

    def bent(self: Any, x: Any, slope: float) -> Any:
        return right(self, x, slope * 0.75)

    network.Builder.bent = bent  # type: ignore[method-assign]


def _region() -> None:
    """A ball that is a little smaller than claimed."""
    right = check.region

    def region(certificate: Any, network: Any) -> Any:
        low, high = right(certificate, network)
        return low + 0.02 * (high - low), high - 0.02 * (high - low)

    check.region = region


def _missing_half() -> None:
    """Of a box that is cut, only what is below the point is looked at."""
    right = boxes._Box.cut

    def cut(self: Any, at: int, point: float) -> Any:
        below, above = right(self, at, point)
        return below, replace(above, low=above.high + 1)

    boxes._Box.cut = cut  # type: ignore[method-assign]


PLANTS: dict[str, Callable[[], None]] = {
    "breakpoint": _breakpoint,
    "slope": _slope,
    "region": _region,
    "half": _missing_half,
}
