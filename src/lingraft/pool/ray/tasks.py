"""Calls side by side on a Ray cluster whose nodes all see the folder that this process works in."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from lingraft.errors import LingraftError
from lingraft.pool.ray.connection import connected
from lingraft.progress import progress


def side_by_side(
    address: str, title: str, function: Callable[..., None], arguments: Sequence[tuple[Any, ...]], gpu: bool = False
) -> list[LingraftError | None]:
    """Call `function` with each of `arguments` on a CPU (and a GPU) of its own; how each call failed, or None.

    `function` belongs to a module that the nodes have. An error that is none of lingraft's ends it all.
    """
    with connected(address, None) as ray, progress(title, len(arguments)) as advance:
        remote = ray.remote(num_cpus=1, num_gpus=1 if gpu else 0, max_retries=0)(_call)
        futures = [remote.remote(str(Path.cwd()), function, each) for each in arguments]
        left = list(futures)
        while left:
            done, left = ray.wait(left)
            advance(len(done))
        try:
            messages = ray.get(futures)
        except ray.exceptions.RayError as error:
            raise LingraftError(f"{title}: {str(error).strip().splitlines()[-1]} Check `ray status`.") from error
    return [None if message is None else LingraftError(message) for message in messages]


def _call(folder: str, function: Callable[..., None], arguments: tuple[Any, ...]) -> str | None:
    """On a node: gives the message of a LingraftError."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise RuntimeError(f"a node does not see {folder}, the folder to work in: {error}.") from error
    torch.set_num_threads(1)
    try:
        function(*arguments)
    except LingraftError as error:
        return str(error)
    return None
