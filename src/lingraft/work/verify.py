"""Verdicts on many images of a model or a run: found in this process or in several, and kept."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.errors import LingraftError
from lingraft.pool.place import Place
from lingraft.runs import Run
from lingraft.runs.holding import holding
from lingraft.runs.own_images import locate
from lingraft.runs.verdicts import Verdicts
from lingraft.solver.request import Constraints, Limits, Request
from lingraft.work.certify import ImageCertificates
from lingraft.work.given import Folder, images_of, kept_run, network_of, radius_of
from lingraft.work.keeping import entry_name, find_verdicts, require_same_weights
from lingraft.work.results import Results

#: Test images, the first ones, where nobody says which.
IMAGES = 1000


def verify(
    model: nn.Module | Folder,
    images: Tensor | int | slice | None = None,
    labels: Tensor | Sequence[int] | None = None,
    *,
    data: Any = None,
    eps: float | None = None,
    lower: Tensor | None = None,
    upper: Tensor | None = None,
    clip: tuple[float, float] | None = (0.0, 1.0),
    constraints: Constraints | None = None,
    timeout: float = 300.0,
    workers: int | None = None,
    double: bool = False,
    branching: str = "smart",
    memory: float | None = None,
    seed: int = 0,
    ray: str | None = None,
    run: Folder | None = None,
    certificates: str | Path | None = None,
    check: bool = False,
    device: str | torch.device = "cpu",
    progress: bool = True,
) -> Results:
    """The verdict on every image: does the model keep its label on the whole region around it?

    `model` is in eval mode, or the folder of a run: then model, data set and `eps` are by default those of the run, and
    verdicts are kept there. `images` are (N, *shape) and `labels` (N,); or `images` says which of `data`: a number (the
    first ones) or a slice, by default the first 1000. `data` is the name of a data set, whose test images are meant, or
    anything that `ImageSet.of` takes. The region is the ℓ∞ ball of radius `eps` cut to `clip`, or the box from `lower`
    to `upper` (N, *shape), taken as it is (`images` may then be None: the middle of the boxes). Instead of labels,
    `constraints` (C, d) asks for C·logits + d > 0, the same for all images. An image that the model itself gets wrong
    is "misclassified" and not looked at further.

    `timeout` is in seconds for each image; `memory` in bytes, in all (default: 70 % of what is free). `workers`
    processes share the images, one thread each (default: one for each core; for one image, and on a GPU, this process);
    0: this process.
    `double` searches in float64 as well; proofs are recomputed in float64 in any case. `branching` is the rule by which
    domains are split, one of your own if you registered it (see docs/extending.md). `ray` is the address of a Ray
    cluster that does the work ("auto": that of this machine, "local": a new one); see docs/cluster.md. `device` is
    where the model of a run folder is put. `progress`: what takes longer than two seconds shows how far it is.

    `run` is the folder of a run that holds this model: verdicts are kept there as they are found, for the report and
    for another call, also of `lingraft verify`, which goes on after a stop. That needs labels and `eps`.

    A certificate of each proof is written to the folder `certificates`, beside the network that they are about as
    `model.onnx`, and with `check` each is checked at once (those of a run go to its folder). Each result says whether
    it has one and whether it was accepted, and a run keeps that; see docs/certificates.md.

    The results, a list in the order of the images, print as a table. See docs/verification.md for what a verdict
    promises.
    """
    limits = Limits(timeout, memory, double, seed, certificates is not None or check, branching)
    place = Place(workers, ray)
    kept = kept_run(model, run)
    with ExitStack() as inside:
        if kept is not None:
            inside.enter_context(holding(kept.path))  # before its weights are read: verdicts name them
            eps = radius_of(eps, kept) if lower is None and upper is None else eps
        asked = _asked(kept, images, labels, data, boxes=lower is not None)
        network = network_of(model, None if isinstance(model, nn.Module) else device)
        if kept is not None and isinstance(model, nn.Module):
            require_same_weights(kept, model)
        request = Request(
            network, asked.images, asked.labels,
            eps=eps, lower=lower, upper=upper, clip=clip, constraints=constraints,
        )  # fmt: skip
        verdicts = certified = None
        if kept is not None:
            if request.labels is None or request.eps is None or request.constraints is not None:
                raise LingraftError("a run keeps verdicts about labels within eps. Give both, or leave out the run.")
            if asked.data is None:
                asked.data, asked.indices = locate(kept, request)
            verdicts = Verdicts(kept, asked.data, request, limits, asked.indices)
        if limits.prove:
            folder = None if kept is None else kept.path / "certificates"
            folder = folder if certificates is None else Path(certificates)
            certified = inside.enter_context(ImageCertificates(request, asked.data, folder, check, place))
        results = find_verdicts(
            request, limits, place, indices=asked.indices, verdicts=verdicts, certificates=certified,
            title="verifying" if progress else None,
        )  # fmt: skip
        first = min(asked.indices, default=0) if asked.indices is not None else 0
        about = {"data": asked.data, "eps": eps, "first": first, "timeout": timeout, "double": double, "seed": seed}
        found = Results(results, about, certified, kept)
        if verdicts is not None:
            name = entry_name(verdicts.data, request, limits, verdicts.indices)
            verdicts.run.add_to_summary("verification", found.figures, name)
    return found


@dataclass
class _Asked:
    """Images and labels, and what they are called: a data set and their indices there, None where that is not known."""

    images: Any
    labels: Any
    data: str | None = None
    indices: Sequence[int] | None = None


def _asked(run: Run | None, images: Any, labels: Any, data: Any, boxes: bool) -> _Asked:
    if not (images is None or isinstance(images, int | slice)) or (data is None and (boxes or run is None)):
        if data is not None or isinstance(images, int | slice):
            raise LingraftError("give images and labels as tensors, or data and which images of it.")
        return _Asked(images, labels)
    if labels is not None:
        raise LingraftError("labels belong to images. Give both, or neither for images of the data set.")
    name, source = images_of(data, "test", run)
    which = _which(images, len(source), name or "the data")
    index = torch.tensor(which)
    return _Asked(source.pixels(index), source.labels[index], name, None if name is None else which)


def _which(images: int | slice | None, count: int, data: str) -> range:
    """The numbers of the images that are asked for, of `count` in all."""
    wanted = slice(IMAGES if images is None else images) if not isinstance(images, slice) else images
    which = range(count)[wanted]
    if not which or (isinstance(images, int) and not 0 < images <= count):
        what = f"{images} images" if isinstance(images, int) else f"images {wanted.start or 0}:{wanted.stop or count}"
        raise LingraftError(f"cannot verify {what}, which {data} does not have: it has {count:,}.")
    return which
