"""`summary.json`: the figures measured of a run, as records that can be relied on."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class _Figures(BaseModel):
    """What is named is checked; what is not, is kept as it is: other versions may write more, or other sections."""

    model_config = ConfigDict(extra="allow", frozen=True)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able, as it was given."""
        return self.model_dump(mode="json", exclude_unset=True)


class BestEpoch(_Figures):
    """The epoch whose weights were kept, counted from 1, and its accuracies on validation images."""

    epoch: int
    sa: float
    ra: float
    #: share that intervals certify, where that was measured
    certified: float | None = None


class TrainingFigures(_Figures):
    """How a network was trained or fine-tuned; `settings` are those of its TrainingConfig."""

    best: BestEpoch | None = None
    epochs: int | None = None
    settings: dict[str, Any] = {}


class EvaluationFigures(_Figures):
    """SA on all `images_sa` test images, RA on the first `images` of them; accuracies are in [0, 1]."""

    data: str
    #: a number, or the name of a tensor
    eps: float | str
    attack: str
    steps: int
    restarts: int
    seed: int | None = None
    sa: float
    images_sa: int
    ra: float
    images: int
    #: what intervals alone certify, and of how many images
    certified_by_intervals: float | None = None
    images_certified: int | None = None


class VerificationFigures(_Figures):
    """Verdicts on some images at one ε: what was asked, and the figures of `lingraft.runs.summary.Summary`."""

    data: str
    #: a number, or the name of a tensor
    eps: float | str
    images: int
    verified: int
    falsified: int
    unknown: int
    misclassified: int
    va: float | None
    unr: float | None
    time: float | None
    #: verified images with a certificate, with one that the checker accepted, and with one that it did not
    proofs: int = 0
    proofs_checked: int = 0
    proofs_rejected: int = 0


class OutcomeFigures(_Figures):
    """One network before or after grafting: SA, RA and UNR on test images."""

    sa: float
    images_sa: int
    ra: float
    images: int
    attack: str
    unstable_ratio: float
    images_unstable: int
    bounds: str


class GraftingFigures(_Figures):
    """What grafting did; `settings` are those of its GraftingConfig, `plan` says how many neurons are grafted where."""

    settings: dict[str, Any]
    before: OutcomeFigures
    after: OutcomeFigures
    plan: dict[str, Any] = {}


class RunSummary(_Figures):
    """All of `summary.json`; a section that is not there was not measured."""

    training: TrainingFigures | None = None
    #: data, attack, ε, images and seed → figures
    evaluation: dict[str, EvaluationFigures] = {}
    #: data, ε, images and limit → figures
    verification: dict[str, VerificationFigures] = {}
    grafting: GraftingFigures | None = None
    #: of a candidate of `lingraft graft --method auto`: how it did
    candidate: dict[str, Any] | None = None
