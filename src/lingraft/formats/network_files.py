"""Which ONNX file is which network of a property: one file, or VNN-COMP's list [('f', 'a.onnx'), ('g', 'b.onnx')]."""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

from lingraft.errors import LingraftError
from lingraft.formats.vnnlib_query import DeclaredNetwork

#: Files by the names of their networks; one that is alone may have the name "".
NetworkFiles = Mapping[str, Path]

#: Longer lists are refused.
MAX_TEXT = 100_000


def network_files(written: str | Path) -> dict[str, Path]:
    """The files of a path, or of a list as `instances.csv` and `run_instance.sh` have it for several networks."""
    text = str(written).strip()
    if not text.startswith("["):
        return {"": Path(written)}
    wrong = LingraftError(f"{text[:60]!r} is no list of networks. Write it as [('f', 'a.onnx'), ('g', 'b.onnx')].")
    if len(text) > MAX_TEXT:
        raise wrong
    try:
        pairs = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise wrong from error
    if not isinstance(pairs, list) or not pairs or not all(map(_is_pair, pairs)):
        raise wrong
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise LingraftError(f"a network is named twice in {text[:60]!r}.")
    return {name: Path(file) for name, file in pairs}


def _is_pair(item: object) -> bool:
    return isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(part, str) for part in item)


def assign(networks: Sequence[DeclaredNetwork], files: NetworkFiles) -> dict[str, Path]:
    """The file of each declared network; one that is declared `equal-to` another may go without."""
    files = dict(files)
    declared = [network.name for network in networks]
    if "" in files and "" not in declared:
        first = next(network.name for network in networks if not network.same)
        files[first] = files.pop("")
    if declared == [""] and len(files) == 1:  # version 1.0 has no names
        return {"": next(iter(files.values()))}
    found: dict[str, Path] = {}
    for network in networks:
        other = found.get(network.like or "") if network.same else None
        file = files.pop(network.name, other)
        if file is None:
            raise LingraftError(
                f"no file is given for network {network.name} of the property. Write --onnx as"
                f' "[{", ".join(f"({name!r}, …)" for name in declared)}]".'
            )
        if other is not None and file != other and not _same_content(file, other):
            raise LingraftError(
                f"network {network.name} is declared equal to {network.like}, but {file} is not {other}."
            )
        found[network.name] = file
    if files:
        raise LingraftError(f"the property declares no network {next(iter(files))!r}, only {', '.join(declared)}.")
    return found


def _same_content(first: Path, second: Path) -> bool:
    try:
        return first.stat().st_size == second.stat().st_size and first.read_bytes() == second.read_bytes()
    except OSError:
        return True  # reading it for good says what is wrong
