"""A model as files that other verifiers read: `lingraft export`."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from lingraft.ball import GIVEN, Clip, Eps
from lingraft.data import ImageSet
from lingraft.errors import LingraftError
from lingraft.formats.benchmark import NETWORK, Properties, write_properties
from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.onnx_grafted import Form
from lingraft.runs import Run
from lingraft.work.given import Folder, images_of, kept_run, network_of, radius_of

#: Real images on which an exported network is compared with the model, if its data set is there.
COMPARED_IMAGES = 8


@dataclass(frozen=True)
class Exported:
    """What was written: the networks, by how much they differ from the model (see `export_onnx`), the properties."""

    networks: list[Path]
    form: Form
    difference: float
    compared_images: int
    properties: Properties | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        figures = {**vars(self), "networks": [str(path) for path in self.networks]}
        del figures["properties"]
        return figures if self.properties is None else {**figures, **self.properties.as_dict()}


def export(
    model: nn.Module | Folder,
    network: str | Path | None = None,
    *,
    form: Form = "output",
    dynamic_batch: bool = False,
    vnnlib: str | Path | None = None,
    images: int | slice = 100,
    eps: Eps | None = None,
    clip: Clip = GIVEN,
    data: Any = None,
    timeout: float = 60.0,
) -> Exported:
    """Write a model as ONNX to `network`, or robustness properties of it to the folder `vnnlib`, or both.

    `model` may be an ONNX file, code that makes a network, "net.py:make_net", or the folder of a run; then `eps` and
    `data` are by default those of the run. `vnnlib` becomes a VNN-COMP benchmark: the network, a property in VNN-LIB
    for each of the test `images` (a number, which is the first ones, or a slice) that is classified correctly, and
    instances.csv with `timeout` seconds for each. `form` and `dynamic_batch` are as for `export_onnx`, which needs no
    data. `eps` may be a tensor of a radius for each feature; `clip` is the range of values (default: that of the data,
    else of the run, else [0, 1]; None: no limits).
    """
    if network is None and vnnlib is None:
        raise LingraftError("nothing to export to. Give a path for the network, NET.onnx, or --vnnlib DIR, or both.")
    run = kept_run(model, None)
    radius = 0.0 if vnnlib is None else radius_of(eps, run, data)
    plain = plain_network(model)
    shape = getattr(plain, "input_shape", None) if run is None else run.describe().input_shape
    if shape is not None and vnnlib is None and data is None:
        test = None if run is None else _if_there(run)
    else:
        _, test = images_of(data, "test", run, clip=clip)
        shape = tuple(test.images.shape[1:])
    compared = None if test is None else test.pixels(slice(COMPARED_IMAGES))
    paths = [Path(path) for path in (network, vnnlib and Path(vnnlib) / NETWORK) if path is not None]
    differences = [
        export_onnx(plain, path, input_shape=shape, form=form, dynamic_batch=dynamic_batch, images=compared)
        for path in paths
    ]
    properties = None
    if vnnlib is not None:
        assert test is not None
        properties = write_properties(Path(vnnlib), plain, test, images, radius, timeout)
    return Exported(paths, form, max(differences), 0 if compared is None else len(compared), properties)


def plain_network(model: nn.Module | Folder) -> nn.Module:
    """The model of a run, or a copy of the given one, in eval mode on the CPU."""
    return copy.deepcopy(model).cpu().eval() if isinstance(model, nn.Module) else network_of(model, "cpu")


def _if_there(run: Run) -> ImageSet | None:
    """The test images of the data set of a run; None if they are not there."""
    try:
        return images_of(None, "test", run)[1]
    except LingraftError:
        return None
