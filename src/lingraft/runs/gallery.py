"""The gallery: trained networks that come with lingraft, or can be fetched, under the name gallery:NAME.

Each is a run folder with the figures that were measured of it and its first test images, so that something can be
proven without any data set. It is copied to the folder of data sets when it is first used; what is found out about it
is kept there.
"""

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lingraft.data.download import Patience
from lingraft.data.fetch import fetch_file
from lingraft.data.places import data_root
from lingraft.data.specs import Source
from lingraft.errors import LingraftError
from lingraft.names import lookup

PREFIX = "gallery:"

#: When to give up fetching.
PATIENCE = Patience()

_HERE = Path(__file__).parent / "gallery_networks"


@dataclass(frozen=True)
class GalleryNetwork:
    """A network of the gallery: what it is, and where its files are."""

    title: str
    #: where its files are published, with paths inside of its folder; None: it comes with lingraft
    source: Source | None = None


#: The one list of networks.
NETWORKS: dict[str, GalleryNetwork] = {
    "digits-grafted50": GalleryNetwork("fast adversarial training, 50 % of the neurons grafted; made in a minute"),
    "cnn-b-half-mnist-grafted50": GalleryNetwork("CNN-B half as wide, weight decay 5e-3, 50 % of the neurons grafted"),
    "cnn-b-cifar10-grafted50": GalleryNetwork("the paper's CNN-B, 30 + 8 epochs, 50 % of the neurons grafted"),
}


def located(path: str | Path) -> Path:
    """The folder of a run that may be named gallery:NAME; then it is copied or fetched if that was not done yet."""
    if not str(path).startswith(PREFIX):
        return Path(path)
    name = str(path).removeprefix(PREFIX)
    network = lookup("network of the gallery", name, NETWORKS)
    if network.source is None:
        return _copied(name)
    return _fetched(name, network.source)


def packed(name: str) -> Path | None:
    """The folder in which the network came with lingraft, not to be written to; None if it has to be fetched."""
    return _HERE / name if NETWORKS[name].source is None else None


def _copied(name: str) -> Path:
    """A copy of what came with lingraft; another version that has other weights makes another one."""
    digest = hashlib.sha256((_HERE / name / "model.safetensors").read_bytes()).hexdigest()[:8]
    folder = data_root() / "gallery" / f"{name}-{digest}"
    if not folder.exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            # whole or not there: two processes may begin at once
            with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as part:
                shutil.copytree(_HERE / name, Path(part) / name)
                os.rename(Path(part) / name, folder)
        except OSError as error:
            if not folder.exists():
                raise LingraftError(
                    f"cannot copy {PREFIX}{name} to {folder} ({error.strerror or error})."
                    " Set LINGRAFT_DATA to a folder that can be written to."
                ) from error
    return folder


def _fetched(name: str, source: Source) -> Path:
    """What was published, checked; files that are there are not asked for again."""
    digest = hashlib.sha256("".join(file.md5 for file in source.files).encode()).hexdigest()[:8]
    folder = data_root() / "gallery" / f"{name}-{digest}"
    # model.json last: without it the folder is no run
    for file in sorted(source.files, key=lambda file: file.path == "model.json"):
        if not (folder / file.path).exists():
            fetch_file(source.addresses, folder / file.path, file, PATIENCE)
    return folder
