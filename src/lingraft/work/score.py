"""Scores of the neurons of a model or a run, and the neurons that they choose."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lingraft import grafting
from lingraft.ball import GIVEN, Clip, Eps
from lingraft.errors import LingraftError
from lingraft.grafting import GraftingConfig, Scores, Significance
from lingraft.grafting.mask_file import save_mask
from lingraft.model.plan import GraftingPlan
from lingraft.model.plan import plan as plan_of
from lingraft.model.sites import sites
from lingraft.model.surgery import masks
from lingraft.names import lookup
from lingraft.runs import Run
from lingraft.runs.holding import holding
from lingraft.work.given import Device, Folder, images_of, kept_run, network_of, radius_of, run_of

#: What can be scored: the images to choose neurons by, and those to report on.
SPLITS = {"train": "training images", "test": "test images"}


def score(
    model: nn.Module | Folder,
    data: Any = None,
    *,
    eps: Eps | None = None,
    clip: Clip = GIVEN,
    significance: str | Significance = "gap-before",
    ratio: float = 0.5,
    instability: str = "count",
    bounds: str = "crown",
    score_images: int = 1000,
    bound_images: int = 100,
    split: str = "train",
    seed: int = 0,
    device: Device = None,
    out: str | Path | None = None,
) -> Scores:
    """How much every neuron matters, and for how many images it is unstable within `eps` (the paper, Section 4).

    `model` may be a run folder, then data set and `eps` are by default those of the run, and the scores are kept there
    (or in the file `out`); it may also be an ONNX file or code that makes a network, "net.py:make_net". `data` should
    be training images, or is the name or file of a data set; the first `score_images` of them are used for the
    significance, the first `bound_images` for the instability. `significance` is one of
    `lingraft.grafting.SIGNIFICANCES` (`ratio` is the share of neurons that hydra learns for), or an object with a
    method `score(model, data)` of your own; `instability` is count, harm, harm-per-site or harm-per-significance;
    `bounds` are intervals, crown or alpha-crown. `eps` may be a tensor of a radius for each feature; `clip` is the
    range of values (default: that of the data, else of the run, else [0, 1]; None: no limits).

    With `split` "test" they are of test images, as the paper's Figure 3 shows them: no neurons can be chosen by those,
    and in a run they are kept beside the others.
    """
    lookup("split", split, SPLITS)
    run = kept_run(model, None)
    name, own = (significance, None) if isinstance(significance, str) else ("gap-before", significance)
    config = GraftingConfig(
        radius_of(eps, run, data),
        ratio=ratio,
        significance=name,
        instability=instability,
        bounds=bounds,
        images=score_images,
        bound_images=bound_images,
        seed=seed,
    )
    with ExitStack() as inside:
        if run is not None:
            inside.enter_context(holding(run.path))
        _, images = images_of(data, split, run, max(score_images, bound_images), clip)
        scores = grafting.score(network_of(model, device), images, config, own)
        if split == "test":
            scores = replace(scores, facts={**scores.facts, "split": split})
        path = run.scores_path_of(split) if run is not None and out is None else out
        if path is not None:
            scores.save(Path(path))
        if run is not None:
            run.keep_command()
    return scores


def select(
    scores: Scores | Folder,
    ratio: float = 0.5,
    *,
    gamma: float | Sequence[float] = grafting.GAMMAS,
    ranks: str = "network",
    run: Folder | None = None,
    out: str | Path | None = None,
) -> dict[str, Tensor]:
    """The mask of that share of all neurons with the highest γ·r_u − r_s, for `lingraft.graft` (the paper, Section 4).

    Site name → boolean tensor of the neuron shape. With several γ an equal share is chosen with each in turn.
    With ranks "site" the share is one of the neurons of each site, ranked among themselves.

    Instead of scores you may give a run folder that `lingraft.score` has put them in, or beside a `run` a file of
    scores. Then neurons that the run's network has grafted already are among the chosen ones, and the mask is kept in
    `out` (default: mask.safetensors in the run folder). For `run` an ONNX file will do, too, if there is an `out`.
    """
    gammas = (float(gamma),) if isinstance(gamma, int | float) else tuple(gamma)
    if isinstance(scores, Scores) and run is None:
        _require_training(scores)
        return grafting.select_ranked(scores, ratio, gammas, ranks)
    if run is None:
        assert not isinstance(scores, Scores)
        run, scores = run_of(scores), run_of(scores).own_scores_path
    kept = kept_run(run, None)
    if kept is None and out is None:
        raise LingraftError(f"{run} is no run folder that the mask could be kept in. Give -o, the file to write.")
    with ExitStack() as inside:
        if kept is not None:
            inside.enter_context(holding(kept.path))
        found = scores if isinstance(scores, Scores) else Scores.load(_path(scores))
        _require_training(found)
        mask = grafting.select_ranked(found, ratio, gammas, ranks, masks(network_of(run, "cpu")))
        path = kept.mask_path if kept is not None and out is None else out
        assert path is not None
        save_mask(Path(path), mask)
        if kept is not None:
            kept.keep_command()
    return mask


def plan(
    model: nn.Module | Folder, mask: Mapping[str, Tensor], input_shape: Sequence[int] | None = None
) -> GraftingPlan:
    """How many neurons of which site a mask grafts in a model, or in that of a run folder: print it before you graft.

    `input_shape` is that of one image; a run and an ONNX file know their own.
    """
    run, network = kept_run(model, None), network_of(model, None)
    if run is not None:
        input_shape = run.describe().input_shape
    input_shape = input_shape or getattr(network, "input_shape", None)
    if input_shape is None:
        raise LingraftError("give input_shape, the shape of one image, e.g. (3, 32, 32), or a run: `lingraft save`.")
    return plan_of(sites(network, tuple(input_shape)), mask)


def _require_training(scores: Scores) -> None:
    if scores.facts.get("split") == "test":
        raise LingraftError("these scores are of test images; choose neurons by those of training images.")


def _path(scores: Folder) -> Path:
    """A file of scores, or that of a run."""
    return scores.own_scores_path if isinstance(scores, Run) else Path(scores)
