"""What the functions of `work/` are given: a model or a run folder, data or the name of a data set."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.attack.evaluation import evaluating
from lingraft.ball import GIVEN, Clip, Eps, Radius, radius, value_range
from lingraft.data import ImageSet, is_file, spec_of
from lingraft.data import load as load_data
from lingraft.data.places import MissingFile
from lingraft.device import device_of, require_precision, resolve_device
from lingraft.errors import LingraftError
from lingraft.files import digest_file
from lingraft.grafting.fine_tuning import describe_sites
from lingraft.model.code import is_code
from lingraft.model.logits import logits
from lingraft.model.plain import plain
from lingraft.model.sites import sites
from lingraft.runs import ModelDescription, Run, load
from lingraft.runs.origin import Origin, is_network, network_from, origin_of
from lingraft.runs.own_images import OWN, kept_images

#: Where a model and what is measured of it are kept. Where a model is asked for, text may also name an ONNX file or
#: code that makes a network, `net.py:make_net`.
Folder = str | Path | Run

#: Where to compute: a name for `resolve_device`; None: where the model is, of a run folder `auto`.
Device = str | torch.device | None


def run_of(folder: Folder) -> Run:
    """The run of a folder."""
    if not isinstance(folder, str | Path | Run):
        raise LingraftError(
            f"{folder!r} is neither a model nor a run folder. A model is an nn.Module,"
            " made by calling its class, e.g. Net()."
        )
    if is_network(folder):
        raise LingraftError(f"{folder} is a network, not a run folder. Keep it in one with `lingraft save`.")
    return folder if isinstance(folder, Run) else Run(folder)


def is_in_run(model: nn.Module | Folder) -> bool:
    """Whether a model is given by the run folder that it is in, rather than by itself."""
    return not isinstance(model, nn.Module) and not is_network(model)


def kept_run(model: nn.Module | Folder, run: Folder | None) -> Run | None:
    """The run to keep figures in: the one that the model is given by, or the one that is named beside it."""
    if not is_in_run(model):
        kept = None if run is None else run_of(run)
    elif run is None:
        assert not isinstance(model, nn.Module)
        kept = run_of(model)
    else:
        raise LingraftError("the model is a run folder, where figures are kept anyway. Leave out run.")
    if kept is not None:
        kept.describe()  # complains of a folder that is no run
    return kept


def network_of(model: nn.Module | Folder, device: Device) -> nn.Module:
    """The model, or that of a run folder, on the device; what a file or code gives is in eval mode."""
    if isinstance(model, str | Path | Run):
        where = _resolved(device or "auto")
        if not is_in_run(model):
            assert not isinstance(model, Run)
            made: nn.Module = network_from(model).eval()
            require_precision(made)
            return made.to(where)
        return load(model, device=where)
    model = plain(model)
    require_precision(model)
    return model if device is None else model.to(_resolved(device))


def device_for(model: nn.Module, device: Device) -> torch.device:
    """Where to compute with a model."""
    return device_of(model) if device is None else _resolved(device)


def _resolved(device: str | torch.device) -> torch.device:
    return resolve_device(str(device))


def radius_of(eps: Eps | None, run: Run | None, data: Any = None) -> Radius:
    """The given ε, else that of the run, else that of a file of data."""
    if eps is None and run is not None:
        eps = run.describe().eps
        data = run.describe().data if data is None else data
    if eps is None and is_file(named(data)):
        eps = spec_of(str(data)).eps
    if eps is None and run is not None:
        return run.describe().radius(eps)
    if eps is None:
        raise LingraftError("give eps, the radius of the ball in the values of the data, e.g. eps=2 / 255 for pixels.")
    return radius(eps)


def clip_of(clip: Clip, data: Any, run: Run | None) -> Clip:
    """The given range of values; where none is given, that of the run, unless the data say their own."""
    if not (isinstance(clip, str) and clip == GIVEN):
        return value_range(clip)
    if run is None or isinstance(data, ImageSet):
        return GIVEN
    about = run.describe()
    other = isinstance(data, str) and is_file(data) and data not in (about.data, about.test_data)
    return GIVEN if other and spec_of(data).ranged else about.clip


def images_of(
    data: Any, split: str, run: Run | None, most: int | None = None, clip: Clip = GIVEN
) -> tuple[str | None, ImageSet]:
    """The images, of a data set those of this split, and its name; without data, of the data set of the run.

    Of anything else than a data set at most `most` images are read. Images that the run was trained on are no test
    images. `clip` is as for `clip_of`.
    """
    if data is None and run is None:
        raise LingraftError(
            "give data: images and labels, a DataLoader, a Dataset, or the name or file of a data set"
            " (--data digits, --data mine.npz)."
        )
    name = named(data)
    if run is not None:
        name = run.describe().data_set(split=split) if data is None else name
        require_same_data(run.describe(), name, split, asked=data is not None)
    clip = clip_of(clip, name or data, run)
    images = ImageSet.of(data, most, clip) if name is None else _load(name, split, clip, run)
    if run is not None:
        run.describe().check_fits(images, "training" if split == "train" else split)
    return name, images


def two_logits(network: nn.Module, data: ImageSet) -> nn.Module:
    """The network; one with a single logit as `lingraft.logits` makes it, which is how it is verified."""
    with torch.no_grad(), evaluating(network):
        given = network(data.pixels(slice(1)).to(device_of(network)))
    single = isinstance(given, Tensor) and (given.ndim == 1 or given.shape[1:] == (1,))
    return logits(network, data.images.shape[1:]) if single else network


def named(data: Any) -> str | None:
    """The name or file of a data set; None for data that have none."""
    return str(data) if isinstance(data, str | Path) else None


def digest_data(name: str | None) -> str | None:
    """The digest of data that are in a file; None for others."""
    return digest_file(Path(name)) if name is not None and is_file(name) else None


def require_same_data(description: ModelDescription, name: str | None, split: str, *, asked: bool) -> None:
    """Refuse test images that the network was trained on and, unless it is `asked` for, a file that has changed."""
    if name is None or description.data_sha256 is None or not is_file(name):
        return
    same = digest_data(name) == description.data_sha256
    if split == "test" and same and not spec_of(name).divided:
        raise LingraftError(
            f"the network is trained on the images of {name}, so they say little of others. Name test images with"
            " --data (train, graft: --test-data), or put them into the file as test_images and test_labels."
        )
    if not asked and name == description.data and not same:
        raise LingraftError(
            f"{name} has changed since the network was trained on it. Restore it, or name it with --data to use it as"
            " it is now."
        )


def _load(name: str, split: str, clip: Clip, run: Run | None) -> ImageSet:
    """Images of a data set; without its files, the test images that the run brings along."""
    try:
        return load_data(name, split, clip=clip)
    except MissingFile:
        brought = kept_images(run, name) if run is not None and split == "test" else None
        if brought is None:
            raise
        return brought.within(clip)


def name_of(given: Sequence[ImageSet]) -> str:
    """A name for data that has none. It changes with every pixel and label, so that no run goes on with other data."""
    digest = hashlib.sha256()
    for data in given:
        digest.update(repr(tuple(data.images.shape)).encode())
        for tensor in (data.images, data.labels):
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return f"{OWN}-{digest.hexdigest()[:8]}"


def require_tests(description: ModelDescription, test_data: str) -> None:
    """Refuse test images that do not fit the network, or that it is trained on."""
    require_same_data(description, test_data, "test", asked=True)
    description.check_fits(load_data(test_data, "test"), "test")


def origin_in(model: nn.Module | Folder, parent: Run | None) -> Origin | None:
    """Where a model comes from: the file or code that is named, the class of a module, or what its parent run says."""
    found = None if isinstance(model, Run) else origin_of(model)
    if found is None and parent is not None and parent.is_described():
        return parent.describe().origin
    return found


def keep_onnx(run: Run, model: nn.Module | Folder, parent: Run | None) -> None:
    """Keep the ONNX file that a model, or that of its parent run, was read from."""
    if is_network(model) and not is_code(str(model)):
        assert isinstance(model, str | Path)
        run.keep_onnx(Path(model))
    elif parent is not None and parent.onnx_path.exists():
        run.keep_onnx(parent.onnx_path)


def describe_own(model: nn.Module, input_shape: tuple[int, ...], **more: Any) -> ModelDescription:
    """What `model.json` says of a model of the user's own; its sites show that torch.fx can trace it."""
    require_precision(model)
    sites(model, input_shape)
    with torch.no_grad(), evaluating(model):
        parameter = next(model.parameters(), torch.zeros(()))
        outputs = model(torch.zeros(1, *input_shape, dtype=parameter.dtype, device=device_of(model)))
    if isinstance(outputs, Tensor) and outputs.ndim in (1, 2) and outputs[0].numel() == 1:
        raise LingraftError(
            "the model gives a single logit. Give lingraft.logits(model, input_shape), which has two, (0, z): class 1"
            " is where z > 0."
        )
    if not isinstance(outputs, Tensor) or outputs.ndim != 2:
        given = f"tensor of shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise LingraftError(f"the model must give logits (N, classes), not a {given}.")
    grafted = describe_sites(model) or None
    return ModelDescription(
        architecture=None, input_shape=input_shape, classes=outputs.shape[1], grafted=grafted, **more
    )
