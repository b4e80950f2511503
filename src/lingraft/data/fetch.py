"""Getting a data set from its official addresses."""

import math
from pathlib import Path
from urllib.parse import urlsplit

from lingraft.data.download import Patience, download, md5_of
from lingraft.data.inventory import inventory
from lingraft.data.places import data_root, find
from lingraft.data.specs import DATASETS, PublishedFile
from lingraft.errors import LingraftError
from lingraft.progress import progress

_MEGABYTE = 1_000_000


def fetch(
    name: str,
    folder: Path | None = None,
    address: str | None = None,
    patience: Patience = Patience(),  # noqa: B008  (frozen)
) -> list[Path]:
    """Download the published files of a data set into `folder` (default: `data_root()`); returns those that are new.

    A data set that is complete, in whichever form, is left alone, and so is a file with the published checksum;
    another one of the same name is replaced once the new one has arrived. `address` is a folder on the web to use
    instead of the official ones.
    """
    override = None if address is None else _web_folder(address)
    root = data_root() if folder is None else Path(folder)
    (holding,) = inventory([name], root)
    if holding.state == "complete":
        return []
    source = DATASETS[name].source
    if source is None:
        raise LingraftError(f"nobody has said where {name} can be fetched from. {' '.join(holding.remarks)}")
    addresses = (override,) if override else source.addresses
    new = []
    for file in source.files:
        path = root / file.path
        if find([path]) and path.stat().st_size == file.size and md5_of(path) == file.md5:
            continue
        fetch_file(addresses, path, file, patience)
        new.append(path)
    return new


def fetch_file(
    addresses: tuple[str, ...],
    path: Path,
    file: PublishedFile,
    patience: Patience,
) -> None:
    """Download one published file to `path`, with a bar; it appears when it is whole and its checksum right."""
    shown = 0
    with progress(f"{file.name} (MB)", math.ceil(file.size / _MEGABYTE)) as advance:

        def report(done: int) -> None:
            nonlocal shown
            now = math.ceil(done / _MEGABYTE)
            if now != shown:  # may go back: a server that cannot resume starts over
                advance(now - shown)
                shown = now

        download([address + file.name for address in addresses], path, file.size, file.md5, report, patience)


def _web_folder(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise LingraftError(
            f"--from {address!r} is not the address of a web folder. Write it like https://host/folder/."
        )
    return address.rstrip("/") + "/"
