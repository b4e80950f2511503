"""From a run folder to a grafted one with functions alone, as the commands do it."""

import pytest
import torch

import lingraft
from lingraft import LingraftError
from lingraft.grafting import SIGNIFICANCES, KnownSignificance
from lingraft.grafting.mask_file import load_mask
from lingraft.model.surgery import masks
from lingraft.runs import Run

FEW = {"score_images": 50, "bound_images": 5, "bounds": "intervals"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = Run(tmp_path_factory.mktemp("runs") / "digits")
    lingraft.train("digits-cnn", "digits", run=run, epochs=1, validation_images=20)
    return run


def test_scores_masks_and_figures_of_a_run_are_kept_there(trained):
    scores = lingraft.score(trained, **FEW)
    assert trained.scores_path.exists()
    assert scores.facts["eps"] == 0.1, "that of the run"
    mask = lingraft.select(trained, 0.25, gamma=1)
    kept = load_mask(trained.mask_path)
    assert all(torch.equal(mask[name], kept[name]) for name in mask)
    same = lingraft.select(scores, 0.25, gamma=1)
    assert all(torch.equal(mask[name], same[name]) for name in mask)
    assert lingraft.plan(trained, mask).grafted == 400
    result = lingraft.evaluate(trained, steps=2, restarts=1, images=20)
    assert list(trained.summary().evaluation) == [f"digits {result.name}"]
    assert lingraft.evaluate(lingraft.load(trained), "digits", eps=0.1, steps=2, restarts=1, images=20).ra == result.ra


def test_a_run_is_grafted_fine_tuned_and_measured(trained, tmp_path):
    seen = []

    def stop(history):
        seen.append(history.last.epoch)
        return True

    how = {"ratio": 0.5, "epochs": 3, "images": 10, "out": tmp_path / "grafted", "on_epoch": stop}
    grafted = lingraft.graft_and_tune(trained, **how, **FEW)
    assert lingraft.graft_and_tune(trained, **how, **FEW).figures == grafted.figures, "finished, although stopped"
    assert seen == [1]
    assert grafted.run.summary().training.epochs == 1
    assert grafted.plan.grafted == 800
    assert grafted.figures["after"]["unstable_ratio"] < grafted.figures["before"]["unstable_ratio"]
    assert grafted.run.describe().parent == str(trained.path)
    loaded = masks(lingraft.load(grafted.run))
    assert all(torch.equal(mask, loaded[name]) for name, mask in masks(grafted.model).items())
    given = lingraft.graft_and_tune(trained, mask=loaded, epochs=0, images=10, out=tmp_path / "given", **FEW)
    assert given.figures["settings"]["ratio"] == 0.5
    with pytest.raises(LingraftError, match="is the run to graft"):
        lingraft.graft_and_tune(trained, out=trained)


def test_a_significance_of_ones_own_has_a_name(trained, tmp_path, monkeypatch):
    class Last:
        def score(self, model, data):
            found = lingraft.sites(model, tuple(data.images.shape[1:]))
            return {site.name: torch.full(site.shape, float(i)) for i, site in enumerate(found)}

    monkeypatch.setitem(SIGNIFICANCES, "last", KnownSignificance("later sites matter more", lambda config: Last()))
    out = tmp_path / "out"
    how = {"significance": "last", "gamma": 0, "ratio": 0.25, "epochs": 0, "images": 10}
    grafted = lingraft.graft_and_tune(trained, out=out, **how, **FEW)
    assert [int(mask.sum()) for mask in masks(grafted.model).values()] == [400, 0, 0]
    assert (
        lingraft.score(trained, significance="last", out=tmp_path / "scores.npz", **FEW).facts["significance"] == "last"
    )
