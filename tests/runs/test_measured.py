"""summary.json: figures are records, and what other versions wrote is kept."""

import json
from pathlib import Path

import pytest

from lingraft import LingraftError
from lingraft.runs import Run


def test_figures_are_records_and_what_other_versions_wrote_beside_them_is_kept(tmp_path: Path) -> None:
    run = Run(tmp_path)
    attacked = {"data": "digits", "eps": 0.1, "attack": "pgd", "steps": 2, "restarts": 1, "sa": 0.5, "ra": 0.25}
    run.add_to_summary("evaluation", {**attacked, "images": 8, "images_sa": 9, "new": [1]}, "one")
    run.add_to_summary("evaluation", {**attacked, "images": 7, "images_sa": 9}, "other")
    run.add_to_summary("unknown", {"x": {"y": 1}})
    summary = run.summary()
    assert [figures.images for figures in summary.evaluation.values()] == [8, 7]
    assert summary.training is None
    kept = json.loads(run.summary_path.read_text())
    assert kept["evaluation"]["one"]["new"] == [1]
    assert kept["unknown"] == {"x": {"y": 1}}


@pytest.mark.parametrize(
    "content", ['{"training": {"best": 3}}', '{"evaluation": {"a": {"data": "digits"}}}', '{"grafting": {}}']
)
def test_figures_of_another_kind_are_an_error_that_names_the_file(tmp_path: Path, content: str) -> None:
    run = Run(tmp_path)
    run.summary_path.write_text(content)
    with pytest.raises(LingraftError, match=r"summary\.json does not say what lingraft writes there"):
        run.summary()
