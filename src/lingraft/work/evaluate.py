"""Standard and robust accuracy of a model or a run."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import nn

from lingraft.attack import evaluation
from lingraft.ball import GIVEN, Clip, Eps
from lingraft.device import device_of, limited_threads
from lingraft.errors import LingraftError
from lingraft.runs import Run
from lingraft.runs.holding import holding
from lingraft.runs.own_images import OWN, called
from lingraft.training.differentiable.certify import certified_by_intervals
from lingraft.work.given import Device, Folder, images_of, is_in_run, kept_run, network_of, radius_of, two_logits
from lingraft.work.keeping import require_same_weights

#: Test images of a data set that are attacked, the first ones, where nobody says how many.
ATTACKED = 1000


@dataclass(frozen=True)
class Accuracy(evaluation.Evaluation):
    """Standard and robust accuracy on `data`, and what intervals alone certify, where that was asked for."""

    data: str = OWN
    #: share of all `images_sa` images that intervals certify
    certified_by_intervals: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Flat and JSON-able."""
        figures = super().as_dict()
        certified = figures.pop("certified_by_intervals")
        figures = {"data": figures.pop("data"), **figures}
        if certified is not None:
            figures |= {"certified_by_intervals": certified, "images_certified": self.images_sa}
        return figures


def evaluate(
    model: nn.Module | Folder,
    data: Any = None,
    *,
    eps: Eps | None = None,
    clip: Clip = GIVEN,
    attack: str = "pgd",
    steps: int = 20,
    restarts: int = 5,
    step_size: float | None = None,
    images: int | str | None = None,
    batch: int = 256,
    intervals: bool | None = None,
    seed: int = 0,
    run: Folder | None = None,
    device: Device = None,
    threads: int | None = None,
) -> Accuracy:
    """Standard accuracy `.sa` on `data`, robust accuracy `.ra` of its first `images` against an attack.

    `model` may be a run folder, then data set and `eps` are by default those of the run, and the figures are kept
    there; so they are with `run`, a folder that holds this model. It may also be an ONNX file or code that makes a
    network, "net.py:make_net". `data` may be the name or file of a data set, whose test images are meant. `images` is a
    number or "all"; by default images of your own are all attacked, of a data set the first 1000. `attack` is pgd,
    fgsm, autoattack (which needs `lingraft[autoattack]`) or one that was registered with `lingraft.attack.register`.
    With `intervals` it is also measured what intervals alone certify (default: of runs that were trained for
    certificates).

    `eps` is a number, a text such as "2/255", or a tensor: a radius for each feature, in the shape of one image, or for
    each image, (N,) or (N, *shape). `clip` is the range of values that the attack stays in (default: that of the data,
    else of the run, else [0, 1]; None: no limits).
    """
    kept = kept_run(model, run)
    plan = evaluation.Attack(radius_of(eps, kept, data), attack, steps, restarts, step_size, seed)
    with ExitStack() as inside:
        inside.enter_context(limited_threads(threads))
        if kept is not None:
            inside.enter_context(holding(kept.path))
        network = network_of(model, device)
        if kept is not None and not is_in_run(model):
            require_same_weights(kept, network)
        name, test = images_of(data, "test", kept, clip=clip)
        network = two_logits(network, test)
        where = device_of(network)
        result = evaluation.evaluate(
            network, test, plan, images=_count(images, len(test), name), batch=batch, device=where
        )
        certified = None
        if _was_certified(kept) if intervals is None else intervals:
            marks = certified_by_intervals(network, test, plan.eps, batch=batch, device=where)
            certified = int(marks.sum()) / len(test)
        accuracy = Accuracy(
            **{field: getattr(result, field) for field in evaluation.Evaluation.__dataclass_fields__},
            data=name or (OWN if kept is None else called(kept, test)),
            certified_by_intervals=certified,
        )
        if kept is not None:
            kept.add_to_summary("evaluation", accuracy.as_dict(), f"{accuracy.data} {accuracy.name}")
    return accuracy


def _was_certified(run: Run | None) -> bool:
    """Whether a run was trained for certificates."""
    trained = None if run is None else run.summary().training
    return trained is not None and trained.best is not None and trained.best.certified is not None


def _count(images: int | str | None, available: int, data: str | None) -> int | None:
    """How many images to attack; None: all."""
    if images is None:
        return None if data is None else min(ATTACKED, available)
    if images == "all":
        return None
    try:
        return int(images)
    except ValueError as error:
        raise LingraftError(f"--images {images!r} is not a number of images. Write it like 500, or all.") from error
