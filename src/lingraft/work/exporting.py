"""A model as files that other verifiers read: `lingraft export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from lingraft.data import ImageSet
from lingraft.data import load as load_data
from lingraft.errors import LingraftError
from lingraft.formats.benchmark import NETWORK, Properties, write_properties
from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.onnx_grafted import Form
from lingraft.model.plain import copied, plain
from lingraft.runs import load
from lingraft.work.given import Folder, images_of, radius_of, run_of

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
    eps: float | None = None,
    data: Any = None,
    timeout: float = 60.0,
) -> Exported:
    """Write a model as ONNX to `network`, or robustness properties of it to the folder `vnnlib`, or both.

    `model` may be the folder of a run; then `eps` and `data` are by default those of the run. `vnnlib` becomes a
    VNN-COMP benchmark: the network, a property in VNN-LIB for each of the test `images` (a number, which is the first
    ones, or a slice) that is classified correctly, and instances.csv with `timeout` seconds for each. `form` and
    `dynamic_batch` are as for `export_onnx`, which needs no data.
    """
    if network is None and vnnlib is None:
        raise LingraftError("nothing to export to. Give a path for the network, NET.onnx, or --vnnlib DIR, or both.")
    run = None if isinstance(model, nn.Module) else run_of(model)
    radius = 0.0 if vnnlib is None else radius_of(eps, run)
    plain = plain_network(model)
    if run is not None and vnnlib is None:
        shape, test = run.describe().input_shape, _if_there(data or run.describe().data)
    else:
        _, test = images_of(data, "test", run)
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
    return copied(plain(model)).cpu().eval() if isinstance(model, nn.Module) else load(model)


def _if_there(name: str | None) -> ImageSet | None:
    """The test images of a data set; None if they are not there."""
    try:
        return None if name is None else load_data(name, "test")
    except LingraftError:
        return None
