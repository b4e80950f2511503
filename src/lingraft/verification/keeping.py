"""Verdicts about a model that is kept in a run folder, kept there as they are found."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from lingraft.data import DATASETS, ImageSet, load
from lingraft.errors import LingraftError
from lingraft.run_lock import held
from lingraft.runs import Run, load_tensors, save_tensors
from lingraft.verification.request import Limits, Request
from lingraft.verification.summary import summarize
from lingraft.verification.verdicts import Verdicts, digest_image
from lingraft.verification.verifier import Result
from lingraft.verification.verify import verify_each

#: Name of images that the run does not name.
OWN = "own"


def verify_and_keep(run: str | Path | Run, request: Request, limits: Limits, seen: Callable[[Result], None]) -> None:
    """Find the verdicts that the run does not hold yet; `seen` is called with all of them.

    Verdicts, witnesses and figures go to the run, and images of the user's own too, for the report. The index of a
    result is the number of its image among all that the run has verdicts about.
    """
    run = run if isinstance(run, Run) else Run(run)
    if request.labels is None or request.eps is None or request.constraints is not None:
        raise LingraftError("a run keeps verdicts about labels within eps. Give both, or leave out the run.")
    with held(run.path):
        require_same_weights(run, request.model)
        data, first = _place(run, request)
        verdicts = Verdicts(run, data, request, limits, first)
        results = verdicts.known()
        for result in results.values():
            seen(result)
        for result in verify_each(request, limits, [i for i in range(len(request)) if i not in results], first):
            verdicts.keep(result)
            results[result.index - first] = result
            seen(result)
        about = {"data": data, "eps": request.eps, "first": first, "timeout": limits.timeout, "double": limits.double}
        name = f"{data} eps={request.eps:.6g} images={first}:{first + len(request)} timeout={limits.timeout:g}"
        name += "" if request.clip == (0, 1) else f" clip={request.clip}"
        summary = summarize((results[i] for i in range(len(request))), limits.timeout)
        figures = {**about, "seed": limits.seed, **summary.as_dict()}
        run.add_to_summary("verification", {**run.summary().get("verification", {}), name: figures})


def _place(run: Run, request: Request) -> tuple[str, int]:
    """What the images are called in this run, and the number of the first of them; images of the user's own are kept.

    Images that are not the first ones of the run's data set are the user's own. Where they go on from those that are
    there already, or are among them, they keep their numbers; else they come behind them.
    """
    name = run.describe().data or OWN
    if name in DATASETS:
        if _begins_with(name, request.images):
            return name, 0
        name = OWN
    kept = kept_images(run, name)
    old, new = ([] if kept is None else _digests(kept.images)), _digests(request.images)
    first = next(o for o in range(len(old) + 1) if _agree(old[o:], new))
    if first + len(new) > len(old):
        images, labels = request.images.float(), torch.tensor(request.labels)
        if kept is not None:
            images, labels = torch.cat([kept.images[:first], images]), torch.cat([kept.labels[:first], labels])
        save_tensors(_images_path(run, name), {"images": images, "labels": labels})
    return name, first


def kept_images(run: Run, name: str) -> ImageSet | None:
    """The images of the user's own that the run has verdicts about; None if it has none of that name."""
    path = _images_path(run, name)
    if not path.exists():
        return None
    tensors, _ = load_tensors(path)
    try:
        return ImageSet(tensors["images"], tensors["labels"])
    except KeyError as error:
        raise LingraftError(f"{path} holds no images. Remove it, and verify them again.") from error


def _images_path(run: Run, name: str) -> Path:
    return run.inside(f"images/{name}.safetensors")


def _digests(images: Tensor) -> list[str]:
    return [digest_image(image) for image in images.float()]


def _agree(old: list[str], new: list[str]) -> bool:
    """Whether the shorter one is the beginning of the other."""
    return all(a == b for a, b in zip(old, new, strict=False))


def _begins_with(name: str, images: Tensor) -> bool:
    try:
        test = load(name, "test")
    except LingraftError:
        return False
    return len(images) <= len(test) and torch.equal(test.pixels(slice(len(images))), images.float())


def require_same_weights(run: Run, model: nn.Module) -> None:
    """Refuse to keep in `run` what is measured of another model than the one it holds."""
    run.describe()
    kept, _ = load_tensors(run.weights_path)
    ours = model.state_dict()
    if kept.keys() != ours.keys() or not all(torch.equal(kept[name], ours[name].cpu()) for name in kept):
        raise LingraftError(
            f"{run.path} holds another model, or other weights, than the one given."
            " Keep this one in a folder of its own with lingraft.save or lingraft.train."
        )
