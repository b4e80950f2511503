"""Verdicts on many images of a model or a run: found in this process or in several, and kept."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.ball import GIVEN, PIXELS, Clip, Eps, eps_name
from lingraft.data import ImageSet
from lingraft.errors import LingraftError
from lingraft.names import parse_images
from lingraft.pool.place import Place
from lingraft.runs import Run
from lingraft.runs.holding import holding
from lingraft.runs.own_images import locate
from lingraft.runs.verdicts import Verdicts
from lingraft.solver.request import Constraints, Limits, Request
from lingraft.work.certify import ImageCertificates
from lingraft.work.given import Device, Folder, clip_of, images_of, is_in_run, kept_run, network_of, radius_of
from lingraft.work.keeping import entry_name, find_verdicts, require_same_weights
from lingraft.work.results import Results

#: Test images, the first ones, where nobody says which.
IMAGES = 1000


def verify(
    model: nn.Module | Folder,
    images: Any = None,
    labels: Tensor | Sequence[int] | None = None,
    *,
    data: Any = None,
    eps: Eps | None = None,
    lower: Tensor | None = None,
    upper: Tensor | None = None,
    clip: Clip = GIVEN,
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
    device: Device = None,
    progress: bool = True,
) -> Results:
    """The verdict on every image: does the model keep its label on the whole region around it?

    `model` is in eval mode, or an ONNX file, code that makes a network ("net.py:make_net"), or the folder of a run:
    then model, data set and `eps` are by default those of the run, and verdicts are kept there. `images` are (N,
    *shape) and `labels` (N,), or both in one: a DataLoader, a Dataset, an ImageSet, whatever `ImageSet.of` takes. Or
    `images` says which of `data`: a number (the first ones), a slice, "50:100" or "all", by default the first 1000;
    `data` is the name or file ("mine.npz") of a data set, whose test images are meant, or anything that `ImageSet.of`
    takes. uint8 images mean [0, 1]; samples may have any shape: images, rows of a table, sequences.

    The region is the ℓ∞ ball of radius `eps` cut to `clip`, or the box from `lower` to `upper` (N, *shape), taken as it
    is (`images` may then be None: the middle of the boxes). `eps` is a number, a text such as "2/255", or a tensor: a
    radius for each feature, in the shape of one sample, or for each image, (N,) or (N, *shape), of which `Result.eps`
    has the name. `clip` is the range of values: two numbers or tensors, None for no limits (default: that of the data,
    else of the run, else [0, 1]). Instead of labels, `constraints` (C, d) asks for C·outputs + d > 0: C (K, outputs)
    and d (K,) for all images, or with an axis for them in front, for each its own. An image that the model itself gets
    wrong is "misclassified" and not looked at further.

    `timeout` is in seconds for each image; `memory` in bytes, in all (default: 70 % of what is free). `workers`
    processes share the images, one thread each (default: one for each core; for one image, and on a GPU, this process);
    0: this process.
    `double` searches in float64 as well; proofs are recomputed in float64 in any case. `branching` is the rule by which
    domains are split, one of your own if you registered it (see docs/extending.md). `ray` is the address of a Ray
    cluster that does the work ("auto": that of this machine, "local": a new one); see docs/cluster.md. `device` is
    where the model is put (default: where it is, that of a run folder on a GPU if there is one). `progress`: what takes
    longer than two seconds shows how far it is.

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
        if lower is None and upper is None and (kept is not None or data is not None):
            eps = radius_of(eps, kept, data)
        asked = _asked(kept, images, labels, data, clip, boxes=lower is not None)
        network = network_of(model, device)
        if kept is not None and not is_in_run(model):
            require_same_weights(kept, network)
        request = Request(
            network, asked.images, asked.labels,
            eps=eps, lower=lower, upper=upper, clip=asked.clip, constraints=constraints,
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
        named = None if request.eps is None else eps_name(request.eps)
        about = {"data": asked.data, "eps": named, "first": first, "timeout": timeout, "double": double, "seed": seed}
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
    clip: Clip
    data: str | None = None
    indices: Sequence[int] | None = None


def _asked(run: Run | None, images: Any, labels: Any, data: Any, clip: Clip, boxes: bool) -> _Asked:
    if data is None and labels is None and _is_data(images):
        images, data = slice(None), images
    which = isinstance(images, int | slice | str)
    if not (images is None or which) or (data is None and (boxes or run is None)):
        if data is not None or which:
            raise LingraftError("give images and labels as tensors, or data and which images of it.")
        clip = clip_of(clip, images, run)
        return _Asked(images, labels, PIXELS if clip == GIVEN else clip)
    if labels is not None:
        raise LingraftError("labels belong to images. Give both, or neither for images of the data set.")
    name, source = images_of(data, "test", run, clip=clip)
    if isinstance(images, str):
        images = int(images) if images.isdecimal() else parse_images(images)
    chosen = _which(images, len(source), name or "the data")
    index = torch.tensor(chosen)
    indices = None if name is None else chosen
    return _Asked(source.pixels(index), source.labels[index], source.clip, name, indices)


def _is_data(images: Any) -> bool:
    """Whether these are images with their labels, and no tensor, array or list of images."""
    if isinstance(images, ImageSet):
        return True
    if isinstance(images, list | tuple):
        first = images[0] if images else None
        pair = len(images) == 2 and all(hasattr(part, "shape") for part in images) and len(images[1].shape) == 1
        return (pair and len(images[0].shape) > 1) or (isinstance(first, list | tuple) and hasattr(first[0], "shape"))
    return not hasattr(images, "shape") and (hasattr(images, "__iter__") or hasattr(images, "__getitem__"))


def _which(images: int | slice | None, count: int, data: str) -> range:
    """The numbers of the images that are asked for, of `count` in all."""
    wanted = slice(IMAGES if images is None else images) if not isinstance(images, slice) else images
    which = range(count)[wanted]
    if not which or (isinstance(images, int) and not 0 < images <= count):
        what = f"{images} images" if isinstance(images, int) else f"images {wanted.start or 0}:{wanted.stop or count}"
        raise LingraftError(f"cannot verify {what}, which {data} does not have: it has {count:,}.")
    return which
