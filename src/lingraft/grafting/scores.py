"""Scores of all neurons of a network, kept in a file with what they were computed from."""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lingraft.errors import LingraftError
from lingraft.files import replacing
from lingraft.grafting.ranking import NeuronValues, rank

#: Bytes that scores take at most, unpacked: more than those of a network of ten million neurons.
LARGEST = 1 << 29


@dataclass(frozen=True)
class Scores:
    """Raw scores, site name → tensor of the neuron shape, and the ranks that follow from them.

    Where the selection does not ask for instability, `instability` is None and every neuron ranks alike.
    """

    significance: NeuronValues
    instability: NeuronValues | None = None
    #: what they were computed from: methods, ε, number of images …; JSON-able
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        neurons = sum(values.numel() for values in self.significance.values())
        facts = [f"{name} {value}" for name, value in self.facts.items() if isinstance(value, str | int | float)]
        return f"Scores({', '.join([f'{neurons:,} neurons of {len(self.significance)} sites', *facts])})"

    @cached_property
    def significance_rank(self) -> dict[str, Tensor]:
        """r_s in [0, 1]."""
        return rank(self.significance)

    @cached_property
    def instability_rank(self) -> dict[str, Tensor]:
        """r_u in [0, 1]."""
        if self.instability is None:
            return {name: torch.full_like(ranks, 0.5) for name, ranks in self.significance_rank.items()}
        return rank(self.instability)

    def of_site(self, name: str) -> "Scores":
        """Those of one site alone, whose neurons are then ranked among themselves."""
        instability = None if self.instability is None else {name: self.instability[name]}
        return Scores({name: self.significance[name]}, instability, self.facts)

    def save(self, path: Path) -> None:
        """Write raw values and ranks as a NumPy archive: arrays `significance/raw/SITE`, `significance/rank/SITE` …"""
        arrays: dict[str, Any] = {"facts": np.array(json.dumps(dict(self.facts)))}
        for kind, raw, ranks in (
            ("significance", self.significance, self.significance_rank),
            ("instability", self.instability, self.instability_rank),
        ):
            for name, values in (raw or {}).items():
                arrays[f"{kind}/raw/{name}"] = values.numpy()
                arrays[f"{kind}/rank/{name}"] = ranks[name].numpy()
        with replacing(path) as part, open(part, "wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> "Scores":
        """Read what `save` wrote; a missing or damaged file is a LingraftError that names it."""
        raw: dict[str, dict[str, Tensor]] = {"significance": {}, "instability": {}}
        # What a damaged archive makes zipfile and NumPy raise is not documented, so everything is caught here.
        try:
            arrays = _read(path)
            facts = json.loads(str(arrays.pop("facts")))
            for key, values in arrays.items():
                kind, _, rest = key.partition("/")
                what, _, name = rest.partition("/")
                if what == "raw":
                    raw[kind][name] = torch.from_numpy(values)
        except FileNotFoundError as error:
            raise LingraftError(f"{path} is missing. Make it with `lingraft score RUN`.") from error
        except Exception as error:
            raise LingraftError(f"{path} is damaged ({error}). Make it again with `lingraft score RUN`.") from error
        shapes = [{name: values.shape for name, values in kind.items()} for kind in raw.values()]
        if not isinstance(facts, dict) or (raw["instability"] and shapes[0] != shapes[1]):
            raise LingraftError(f"{path} does not hold scores. Make it again with `lingraft score RUN`.")
        return cls(raw["significance"], raw["instability"] or None, facts)


def _read(path: Path) -> dict[str, NDArray]:
    """All arrays, so that damage anywhere is noticed; what an archive claims to unpack to is looked at before."""
    with zipfile.ZipFile(path) as packed:
        size = sum(member.file_size for member in packed.infolist())
    if size > LARGEST:
        raise ValueError(f"it unpacks to {size:,} bytes")
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    wrong = [name for name, values in arrays.items() if name != "facts" and values.dtype.kind not in "fiu"]
    if wrong:
        raise ValueError(f"{wrong[0]} is not made of numbers")
    return arrays
