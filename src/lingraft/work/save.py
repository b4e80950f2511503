"""Keeping a model of the user's own in a run folder."""

from collections.abc import Sequence

from torch import nn

from lingraft.ball import PIXELS, Ball, Clip, Eps, radius, value_range
from lingraft.errors import LingraftError
from lingraft.runs import Run
from lingraft.runs.holding import holding
from lingraft.work.given import Folder, describe_own, run_of


def save(
    model: nn.Module,
    run: Folder,
    input_shape: Sequence[int],
    *,
    eps: Eps | None = None,
    clip: Clip = PIXELS,
    parent: Folder | None = None,
) -> Run:
    """Keep a model of your own in a new run folder; `lingraft.load(run, model=YourModel())` gives it back.

    `input_shape` is that of one image, or of one sample of any kind; `eps` the radius to use where none is said: a
    number, a text such as "2/255", or a tensor of one for each feature. `clip` is the range of values of the data, None
    for no limits (see `ImageSet`), `parent` the run of the model that this one was grafted from.
    """
    run = run_of(run)
    from_run = None if parent is None else str(run_of(parent).path)
    shape, limits = tuple(input_shape), value_range(clip)
    if eps is not None:
        Ball.around(radius(eps, alike=True), (1, *shape), limits)
    description = describe_own(model, shape, eps=eps, clip=limits, parent=from_run)
    with holding(run.path):
        if run.weights_path.exists():
            raise LingraftError(f"{run.path} holds a model already. Choose another folder.")
        run.save_weights(model)
        run.write_description(description)
    return run
