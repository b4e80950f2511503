"""Keeping a model of the user's own in a run folder."""

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from lingraft.ball import GIVEN, PIXELS, Ball, Clip, Eps, radius, value_range
from lingraft.data import load, spec_of
from lingraft.errors import LingraftError
from lingraft.runs import Run
from lingraft.runs.holding import holding
from lingraft.work.given import Folder, describe_own, keep_onnx, named, network_of, origin_in, run_of


def save(
    model: nn.Module | str | Path,
    run: Folder,
    input_shape: Sequence[int] | None = None,
    *,
    data: str | Path | None = None,
    eps: Eps | None = None,
    clip: Clip = GIVEN,
    parent: Folder | None = None,
) -> Run:
    """Keep a model of your own in a new run folder; `lingraft.load(run, model=YourModel())` gives it back.

    `model` may also be an ONNX file, which the run keeps a copy of, or code that makes it, "net.py:make_net".
    `input_shape` is that of one image, or of one sample of any kind (default: that of `data`, or of the ONNX file).
    `data`, a data set or a file of test images, and the radius `eps` are what is used where none is said: a number, a
    text such as "2/255", or a tensor of one for each feature. `clip` is the range of values (default: that of the data,
    else [0, 1]; None: no limits; see `ImageSet`), `parent` the run of the model that this one was grafted from.
    """
    run, name, before = run_of(run), named(data), None if parent is None else run_of(parent)
    network = model if isinstance(model, nn.Module) else network_of(model, "cpu")
    shape = spec_of(name).input_shape if name is not None else getattr(network, "input_shape", None)
    shape = shape if input_shape is None else tuple(input_shape)
    if shape is None:
        raise LingraftError("give input_shape, the shape of one image, e.g. (3, 32, 32), or data (--data).")
    if name is not None:
        limits = load(name, "test", clip=clip).clip
    else:
        limits = PIXELS if clip == GIVEN else value_range(clip)
    if eps is not None:
        Ball.around(radius(eps, alike=True), (1, *shape), limits)
    description = describe_own(
        network, shape, data=name, eps=eps, clip=limits,
        parent=None if before is None else str(before.path), origin=origin_in(model, before),
    )  # fmt: skip
    with holding(run.path):
        if run.weights_path.exists():
            raise LingraftError(f"{run.path} holds a model already. Choose another folder.")
        keep_onnx(run, model, before)
        run.save_weights(network)
        run.write_description(description)
        run.keep_command()
    return run
