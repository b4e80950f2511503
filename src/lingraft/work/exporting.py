"""The model of a run as files that other verifiers read: `lingraft export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft.data import ImageSet
from lingraft.data import load as load_data
from lingraft.errors import LingraftError
from lingraft.formats.benchmark import NETWORK, Properties, write_properties
from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.onnx_grafted import Form
from lingraft.runs import Run, load

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
    run: str | Path | Run,
    network: str | Path | None = None,
    *,
    form: Form = "output",
    dynamic_batch: bool = False,
    vnnlib: str | Path | None = None,
    images: int | slice = 100,
    eps: float | None = None,
    data: str | None = None,
    timeout: float = 60.0,
) -> Exported:
    """Write the model of a run as ONNX to `network`, or robustness properties of it to the folder `vnnlib`, or both.

    `vnnlib` becomes a VNN-COMP benchmark: the network, a property in VNN-LIB for each of the test `images` (a number,
    which is the first ones, or a slice) that is classified correctly, and instances.csv with `timeout` seconds for
    each. `eps` and `data` are those of the run unless given. `form` and `dynamic_batch` are as for `export_onnx`.
    """
    if network is None and vnnlib is None:
        raise LingraftError("nothing to export to. Give a path for the network, NET.onnx, or --vnnlib DIR, or both.")
    run = run if isinstance(run, Run) else Run(run)
    description, model = run.describe(), load(run)
    if vnnlib is None:
        folder, test = None, _if_there(data or description.data)
    else:
        folder, eps, test = Path(vnnlib), description.radius(eps), load_data(description.data_set(data), "test")
    compared = None if test is None else test.pixels(slice(COMPARED_IMAGES))
    paths = [] if network is None else [Path(network)]
    paths += [] if folder is None else [folder / NETWORK]
    differences = [
        export_onnx(
            model, path, input_shape=description.input_shape, form=form, dynamic_batch=dynamic_batch, images=compared
        )
        for path in paths
    ]
    properties = None
    if folder is not None:
        assert test is not None
        assert eps is not None
        properties = write_properties(folder, model, test, images, eps, timeout)
    return Exported(paths, form, max(differences), 0 if compared is None else len(compared), properties)


def _if_there(name: str | None) -> ImageSet | None:
    """The test images of a data set; None if they are not there."""
    try:
        return None if name is None else load_data(name, "test")
    except LingraftError:
        return None
