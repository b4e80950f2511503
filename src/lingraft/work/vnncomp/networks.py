"""Networks and properties of instances, read and put together."""

from pathlib import Path

import numpy as np
import torch

from lingraft.errors import LingraftError
from lingraft.formats.answer import Placed
from lingraft.formats.joined_network import JoinedNetwork, Part
from lingraft.formats.network_files import NetworkFiles, assign
from lingraft.formats.onnx_network import OnnxNetwork
from lingraft.formats.vnnlib import Property, property_of, require_sizes
from lingraft.formats.vnnlib_query import DeclaredNetwork, Query, Tensor, read_query
from lingraft.work.vnncomp.instance import Instance

#: A file, which value of it is the output (None for its only output, else as `select_output` wants it), and how many
#: values its inputs have.
_Wanted = tuple[Path, str | int | None, int]


class Networks:
    """Reads instances, and keeps the networks of the last one, since benchmarks ask much about few."""

    def __init__(self, device: str | torch.device = "cpu"):
        self.device = device
        self._kept: dict[_Wanted, OnnxNetwork] = {}

    def instance(self, files: NetworkFiles, vnnlib: Path) -> Instance:
        """The instance of these networks and a property, which must fit them."""
        query = read_query(vnnlib)
        try:
            given = assign(query.networks, files)
            sizes = {n.name: sum(tensor.size for tensor in n.inputs) for n in query.networks}
            wanted = [(given[n.name], which, sizes[n.name]) for n in query.networks for which in _values(n)]
            # frees the memory of the others before the next are read
            self._kept = {key: network for key, network in self._kept.items() if key in wanted}
            networks = [self._network(key) for key in wanted]
            if query.is_plain:
                require_sizes(query, networks[0].inputs, networks[0].outputs)
            if query.version != "1.0":
                _require_shapes(query, networks)
            found = property_of(query)
        except LingraftError as error:
            known = any(str(path) in str(error) for path in (vnnlib, *files.values()))
            raise error if known else LingraftError(f"{vnnlib}, {error}") from error
        placed = () if query.version == "1.0" else _placed(query)
        if query.is_plain and not found.with_inputs:
            return Instance(networks[0], found, placed)
        return Instance(_joined(query, found, networks), found, placed, query.copies)

    def _network(self, key: _Wanted) -> OnnxNetwork:
        if key not in self._kept:
            self._kept[key] = OnnxNetwork(key[0], self.device, key[1], key[2])
        return self._kept[key]


def _values(network: DeclaredNetwork) -> list[str | int | None]:
    """Which value of its file each computed one of a network is."""
    alone = len(network.outputs) == 1
    outputs = [tensor.onnx or (None if alone else number) for number, tensor in enumerate(network.outputs)]
    return [*(tensor.onnx for tensor in network.hidden), *outputs]


def _joined(query: Query, found: Property, networks: list[OnnxNetwork]) -> JoinedNetwork:
    """One network of all; `networks` has one for each computed tensor of the query."""
    parts, first, left = [], 0, iter(networks)
    for declared in query.networks:
        places = []
        for tensor in declared.inputs:
            places.append(query.copies[first : first + tensor.size])
            first += tensor.size
        for _ in declared.computed:
            network = next(left)
            order = _input_order(declared, network)
            parts.append(Part(network, np.concatenate([places[i] for i in order])))
    return JoinedNetwork(parts, query.inputs, found.with_inputs)


def _require_shapes(query: Query, networks: list[OnnxNetwork]) -> None:
    """Refuse tensors that are declared with other shapes than the files have; `networks` as for `_joined`."""
    left = iter(networks)
    for declared in query.networks:
        for computed in declared.computed:
            network = next(left)
            order = _input_order(declared, network)
            shapes = [network.input_shape] if len(order) == 1 else list(network.input_shapes.values())
            for number, shape in zip(order, shapes, strict=True):
                _require_shape(declared, "input", declared.inputs[number], shape)
            _require_shape(declared, "output", computed, network.output_shape)


def _input_order(declared: DeclaredNetwork, network: OnnxNetwork) -> list[int]:
    """The number of the declared input that each input of the file is: by its name in ONNX, if all say theirs."""
    names = [tensor.onnx for tensor in declared.inputs]
    count = len(network.input_shapes)
    if len(names) != count:
        raise LingraftError(
            f"the property declares {len(names)} inputs of network {declared.name}, but its file has {count}."
        )
    if None in names:
        return list(range(count))
    missing = next((name for name in names if name not in network.input_shapes), None)
    if missing is not None or len(set(names)) < count:
        raise LingraftError(f"the file of network {declared.name} has no input {missing or names[0]!r} of its own.")
    return [names.index(name) for name in network.input_shapes]


def _require_shape(network: DeclaredNetwork, what: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Dimensions of 1, such as that of the batch, make no difference: they change the place of no value."""
    if [size for size in tensor.shape if size != 1] != [size for size in shape if size != 1]:
        raise LingraftError(
            f"the property declares {tensor.name} of network {network.name} with shape {list(tensor.shape)}, but that"
            f" {what} of its file has {list(shape)}. Declare the shape of the file."
        )


def _placed(query: Query) -> tuple[Placed, ...]:
    """Where the values of each declared tensor are, in the order in which a counterexample is written."""
    counts, found = [0, 0], []
    for network in query.networks:
        for computed, tensors in enumerate((network.inputs, network.computed)):
            for tensor in tensors:
                shape = ",".join(map(str, tensor.shape))
                start = counts[computed]
                counts[computed] += tensor.size
                found.append(Placed(f"{tensor.name} {tensor.type} [{shape}]", bool(computed), start, counts[computed]))
    return tuple(found)
