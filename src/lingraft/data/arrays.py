"""Files of NumPy arrays (.npz), read so that none can fill the memory or run code."""

import zipfile
from collections.abc import Collection
from math import prod
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from lingraft.errors import LingraftError

#: Bytes that all arrays of a file may have.
LARGEST = 1 << 33

ENDING = ".npy"


def read_arrays(path: Path, names: Collection[str]) -> dict[str, NDArray]:
    """The arrays of a file that have one of these names; nothing is unpickled.

    What a file claims to hold is compared with what is in it before an array of that size is made.
    """
    # What a damaged archive makes zipfile, zlib and NumPy raise is not documented, so everything is caught here.
    try:
        with zipfile.ZipFile(path) as packed:
            members = {member.filename.removesuffix(ENDING): member for member in packed.infolist()}
            size = sum(member.file_size for member in members.values())
            if size > LARGEST:
                raise LingraftError(f"{path} unpacks to {size:,} bytes, more than the {LARGEST:,} that lingraft reads.")
            return {name: _array(packed, member) for name, member in members.items() if name in names}
    except LingraftError:
        raise
    except MemoryError as error:
        raise LingraftError(f"{path} does not fit into the memory. Put fewer images into it.") from error
    except Exception as error:
        raise LingraftError(f"{path} cannot be read ({error}). Write it anew with numpy.savez.") from error


def _array(packed: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray:
    with packed.open(member) as file:
        version = npy.read_magic(file)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, kind = header(file)
        if kind.hasobject:
            raise ValueError(f"{member.filename} holds Python objects instead of numbers")
        if prod(shape) * kind.itemsize > member.file_size:
            raise ValueError(f"{member.filename} ends before its {prod(shape):,} values")
    with packed.open(member) as file:
        array: NDArray = np.asarray(npy.read_array(file, allow_pickle=False))
    return array
