"""What the page says first."""

import shutil
from pathlib import Path
from typing import Any

from lingraft.report.headline import headline, newly_broken
from lingraft.report.study import Study, Verification, studies
from lingraft.runs import Run
from lingraft.solver.verifier import Result


def verification(*verdicts: str, first: int = 0, image: str = "") -> Verification:
    records = [{"index": first + i, "image": f"{image}{first + i}", "verdict": v} for i, v in enumerate(verdicts)]
    return Verification("digits", 0.1, [], records)


def test_broken_are_images_that_were_not_broken_before() -> None:
    before = verification("verified", "unknown", "falsified", "misclassified", "verified", "unknown")
    after = verification("falsified", "misclassified", "falsified", "falsified", "verified", "unknown", "falsified")
    assert newly_broken(before, after) == (2, 6), "image 6 has no verdict before"
    assert newly_broken(after, before) == (0, 6)
    assert newly_broken(before, verification("falsified", image="another ")) == (0, 0)


def keep(run: Run, keeper: Any, verdicts: list[str]) -> None:
    kept = keeper(run, len(verdicts))
    for i, verdict in enumerate(verdicts):
        kept.keep(i, Result(verdict, "crown", index=i, label=kept.request.labels[i], eps=0.05))


def add_evaluation(run: Run, sa: float, ra: float) -> None:
    figures = {"data": "digits", "eps": 0.05, "sa": sa, "ra": ra, "images": 9, "images_sa": 9, "attack": "pgd", "steps": 9,
               "restarts": 1, "seed": 0}  # fmt: skip
    run.add_to_summary("evaluation", {"test": figures})


def pair(bare_run: Any, keeper: Any, folder: Path) -> list[Study]:
    """A run, and one that was grafted from it, with verdicts of our own."""
    base = bare_run(folder / "base")
    child = Run(shutil.copytree(base.path, folder / "child"))
    child.write_description(base.describe().model_copy(update={"parent": str(base.path)}))
    keep(base, keeper, ["unknown", "unknown", "verified", "falsified"])
    keep(child, keeper, ["verified", "falsified", "verified", "verified"])
    add_evaluation(base, 0.98, 0.9)
    add_evaluation(child, 0.96, 0.88)
    return studies([base, child])


def test_gain_and_price(bare_run: Any, keeper: Any, tmp_path: Path) -> None:
    gain, price = headline(pair(bare_run, keeper, tmp_path))
    assert gain == "75.0% of 4 images are proven robust in child; 25.0% in base, which it was grafted from."
    assert price == (
        "The price: SA 98.0% → 96.0%; RA 90.0% → 88.0%; of 4 images verified in both, 1 is broken (falsified or"
        " misclassified) now and not before."
    )


def test_a_run_alone_says_what_it_is(bare_run: Any, keeper: Any, tmp_path: Path) -> None:
    _, child = pair(bare_run, keeper, tmp_path)
    assert headline(studies([child.run])) == [
        "75.0% of 4 images are proven robust in child; of the test images, 96.0% are classified correctly (SA) and 88.0%"
        " withstand the attack (RA)."
    ]


def test_without_verdicts_there_is_nothing_to_say(bare: Run) -> None:
    assert headline(studies([bare])) == []
