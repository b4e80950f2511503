"""Verdicts about a model that is kept in a run folder, kept there as they are found."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from lingraft.errors import LingraftError
from lingraft.pool.images import verify_each
from lingraft.pool.place import Place
from lingraft.runs import Run, load_tensors
from lingraft.runs.lock import held
from lingraft.runs.own_images import place_of
from lingraft.runs.summary import summarize
from lingraft.runs.verdicts import Verdicts
from lingraft.solver.request import Limits, Request
from lingraft.solver.verifier import Result


def verify_and_keep(
    run: str | Path | Run, request: Request, limits: Limits, place: Place, seen: Callable[[Result], None]
) -> None:
    """Find the verdicts that the run does not hold yet; `seen` is called with all of them.

    Verdicts, witnesses and figures go to the run, and images of the user's own too, for the report. The index of a
    result is the number of its image among all that the run has verdicts about.
    """
    run = run if isinstance(run, Run) else Run(run)
    if request.labels is None or request.eps is None or request.constraints is not None:
        raise LingraftError("a run keeps verdicts about labels within eps. Give both, or leave out the run.")
    with held(run.path):
        require_same_weights(run, request.model)
        data, first = place_of(run, request)
        verdicts = Verdicts(run, data, request, limits, first)
        results = verdicts.known()
        for result in results.values():
            seen(result)
        left, indices = [i for i in range(len(request)) if i not in results], range(first, first + len(request))
        for result in verify_each(request, limits, place, left, indices):
            verdicts.keep(result)
            results[result.index - first] = result
            seen(result)
        about = {"data": data, "eps": request.eps, "first": first, "timeout": limits.timeout, "double": limits.double}
        name = f"{data} eps={request.eps:.6g} images={first}:{first + len(request)} timeout={limits.timeout:g}"
        name += "" if request.clip == (0, 1) else f" clip={request.clip}"
        summary = summarize((results[i] for i in range(len(request))), limits.timeout)
        figures = {**about, "seed": limits.seed, **summary.as_dict()}
        run.add_to_summary("verification", figures, name)


def require_same_weights(run: Run, model: nn.Module) -> None:
    """Refuse to keep in `run` what is measured of another model than the one it holds."""
    run.describe()
    kept, _ = load_tensors(run.weights_path)
    ours = model.state_dict()
    if kept.keys() != ours.keys() or not all(torch.equal(kept[name], ours[name].cpu()) for name in kept):
        raise LingraftError(
            f"{run.path} holds another model, or other weights, than the one given."
            " Keep this one in a folder of its own with lingraft.save or lingraft.train."
        )
