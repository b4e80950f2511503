"""The figures of many results: VA, UNR and Time as the paper counts them (Section "Evaluation metrics"), and more."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from lingraft.solver.verifier import Result

VERDICTS = ("verified", "falsified", "unknown", "misclassified")


@dataclass(frozen=True)
class Summary:
    """Shares are of all images and in [0, 1]; figures that no image contributes to are None.

    A verdict that came after the limit does not count: the image is unknown, for want of time. `va` is the verified
    share. `unr` is the share of neurons that are unstable and not grafted, mean over the
    `unr_images` whose neurons were bounded: an image that is misclassified or falsified by an attack never gets that
    far and has no count (for one that intervals verify, the count is by intervals, for all others by CROWN).
    `time` is the mean of the seconds of the `time_images` that were neither misclassified nor successfully attacked.
    `curve` gives (limit in seconds, VA had that been the limit). `stages` counts what decided the decided ones.
    `proofs` counts the verified ones that have a certificate, `proofs_checked` those whose certificate the checker
    accepted, `proofs_rejected` those whose it did not.
    """

    images: int
    verified: int
    falsified: int
    unknown: int
    misclassified: int
    va: float | None
    falsified_share: float | None
    unknown_share: float | None
    misclassified_share: float | None
    unr: float | None
    unr_images: int
    time: float | None
    time_images: int
    domains: int
    unknown_reasons: dict[str, int]
    stages: dict[str, int]
    curve: list[tuple[float, float]]
    proofs: int
    proofs_checked: int
    proofs_rejected: int

    @property
    def proofs_said(self) -> str | None:
        """What became of the proofs, in words; None where none was written."""
        counts = self.proofs, self.proofs_checked, self.proofs_rejected
        return proofs_in_words(self.verified, *counts) if self.proofs else None

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)


def summarize(results: Iterable[Result], timeout: float) -> Summary:
    """The figures of these results, which had `timeout` seconds each."""
    results = [in_time(result, timeout) for result in results]
    count = Counter(result.verdict for result in results)
    shares = {name: count[name] / len(results) if results else None for name in VERDICTS}
    unstable = [sum(r.unstable.values()) / r.neurons for r in results if r.unstable and r.neurons]
    times = [r.seconds for r in results if r.verdict != "misclassified" and not was_attacked(r)]
    decided = Counter(r.stage for r in results if r.verdict != "unknown")
    states = Counter(r.proof_state for r in results if r.verdict == "verified")
    reasons = Counter(r.reason or "" for r in results if r.verdict == "unknown")
    return Summary(
        images=len(results),
        verified=count["verified"],
        falsified=count["falsified"],
        unknown=count["unknown"],
        misclassified=count["misclassified"],
        va=shares["verified"],
        falsified_share=shares["falsified"],
        unknown_share=shares["unknown"],
        misclassified_share=shares["misclassified"],
        unr=fmean(unstable) if unstable else None,
        unr_images=len(unstable),
        time=fmean(times) if times else None,
        time_images=len(times),
        domains=sum(r.domains for r in results),
        unknown_reasons=dict(sorted(reasons.items())),
        stages=dict(sorted(decided.items())),
        curve=va_curve(results, _limits(timeout)),
        proofs=states["written"] + states["checked"] + states["rejected"],
        proofs_checked=states["checked"],
        proofs_rejected=states["rejected"],
    )


def proofs_in_words(verified: int, proofs: int, checked: int, rejected: int) -> str:
    """What became of the `proofs` that were written, of so many verified images."""
    if not checked + rejected:
        return f"{proofs:,} of {verified:,} proofs written, not checked"
    text = f"{checked:,} of {verified:,} proofs checked by the independent checker"
    return f"{text}, which rejected {rejected:,}" if rejected else text


def in_time(result: Result, timeout: float) -> Result:
    """The result, or what it is under this limit: workers may take a moment longer."""
    if result.verdict in ("verified", "falsified") and result.seconds > timeout:
        return replace(result, verdict="unknown", reason="time")
    return result


def was_attacked(result: Result) -> bool:
    """Whether an attack found the witness, not branch and bound."""
    return result.verdict == "falsified" and result.stage == "attack"


def va_curve(results: Sequence[Result], limits: Sequence[float]) -> list[tuple[float, float]]:
    """(limit, share of all images that were verified within it); the last limit is the one that was set."""
    if not results:
        return []
    times = [r.seconds for r in results if r.verdict == "verified"]
    return [(limit, sum(t <= limit for t in times) / len(results)) for limit in limits]


def _limits(timeout: float) -> list[float]:
    """0.1, 0.2, 0.5, 1, 2, 5 … seconds up to the limit, and the limit itself."""
    steps = [m * 10.0**k for k in range(-1, 6) for m in (1, 2, 5)]
    return [round(step, 1) for step in steps if step < timeout] + [timeout]
