"""What the verdict browser is given."""

import base64
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from lingraft.data import load
from lingraft.report.browser import magnified_difference, picture, verdict_browser
from lingraft.report.study import studies
from lingraft.report.write import write_report
from lingraft.runs import Run
from lingraft.solver.verifier import Result


def test_every_image_is_there_with_its_picture(runs: list[Run]) -> None:
    shown = verdict_browser(studies(runs))
    assert [run["name"] for run in shown["runs"]] == ["base", "grafted"]
    assert sorted(shown["sets"]["digits"]["images"]) == list(range(24))
    for run in shown["runs"]:
        assert [item["index"] for item in run["images"]] == list(range(24))
        for item in run["images"]:
            assert (item["taken"] == item["label"]) == (item["verdict"] != "misclassified")
            assert ("witness" in item) == (item["verdict"] == "falsified")
            if item["verdict"] == "falsified":
                assert item["witness_taken"] != item["label"]
                assert item["difference"].startswith("data:image/png")


def test_an_image_says_what_became_of_its_proof(bare: Run, keeper: Any) -> None:
    verdicts = keeper(bare, 4)
    for i, (certificate, checked) in enumerate([(True, True), (True, None), (True, False), (None, None)]):
        label = verdicts.request.labels[i]
        found = Result("verified", "crown", index=i, label=label, eps=0.05, certificate=certificate, checked=checked)
        verdicts.keep(i, found)
    (shown,) = verdict_browser(studies([bare]))["runs"]
    assert [item.get("proof") for item in shown["images"]] == ["checked", "written", "rejected", None]
    (row,) = studies([bare])[0].rows
    assert (row.proofs, row.proofs_checked, row.proof) == (3, 1, "1 of 4 checked, 1 rejected")


def test_a_verdict_after_its_limit_is_undecided_as_in_the_counts(bare: Run, keeper: Any) -> None:
    verdicts = keeper(bare, 3, timeout=1.0)
    for i, (verdict, seconds) in enumerate([("verified", 0.9), ("verified", 1.1), ("falsified", 1.1)]):
        witness = verdicts.request.images[i] if verdict == "falsified" else None
        found = Result(verdict, "branch", index=i, label=verdicts.request.labels[i], eps=0.05, witness=witness)
        found.seconds = seconds
        verdicts.keep(i, found)
    (study,) = studies([bare])
    (shown,) = verdict_browser([study])["runs"]
    assert [item["verdict"] for item in shown["images"]] == ["verified", "unknown", "unknown"]
    assert [item.get("reason") for item in shown["images"]] == [None, "time", "time"]
    assert "witness" not in shown["images"][2]
    (row,) = study.rows
    assert row.verified == 1


def test_an_image_that_is_another_one_now_is_not_shown(bare: Run, keeper: Any) -> None:
    verdicts = keeper(bare, 2)
    verdicts.request.images[1] = 0.5  # as if the verdict had been on another version of the data
    for i in range(2):
        verdicts.keep(i, Result("verified", "crown", index=i, label=verdicts.request.labels[i], eps=0.05))
    shown = verdict_browser(studies([bare]))
    assert list(shown["sets"]["digits"]["images"]) == [0]
    assert "taken" not in shown["runs"][0]["images"][1]


def test_a_witness_that_is_gone_leaves_the_verdict(bare: Run, keeper: Any) -> None:
    verdicts = keeper(bare, 1)
    image = verdicts.request.images[0]
    found = Result("falsified", "attack", index=0, label=verdicts.request.labels[0], eps=0.05, witness=image)
    verdicts.keep(0, found)
    for path in (bare.path / "witnesses").iterdir():
        path.unlink()
    (item,) = verdict_browser(studies([bare]))["runs"][0]["images"]
    assert item["verdict"] == "falsified"
    assert "witness" not in item


def test_data_that_is_not_here_is_explained(bare_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lingraft.files import append_line
    from lingraft.runs.verdicts import digest_weights, record_of

    monkeypatch.setenv("LINGRAFT_DATA", str(tmp_path / "empty"))
    (tmp_path / "empty").mkdir()
    run = bare_run(tmp_path / "run", "conv-big", "mnist")
    record = record_of(Result("verified", "crown", index=0, label=7, eps=0.1))
    about = {"weights": digest_weights(run), "data": "mnist", "image": "0", "timeout": 1.0, "seed": 0}
    append_line(run.verdicts_path, {**about, **record})
    shown = verdict_browser(studies([run]))
    assert "mnist" in shown["sets"]["mnist"]["why"].lower()
    assert "no pictures" in write_report([run], tmp_path / "r.html").read_text()


def test_two_hundred_images_of_cifar_stay_under_ten_megabytes(
    data_folder: Path, bare_run: Any, keeper: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst there can be: four runs, and a witness of random signs for every image."""
    generator = torch.Generator().manual_seed(0)
    runs, eps = [bare_run(tmp_path / f"run{i}", "cnn-b", "cifar10") for i in range(4)], 2 / 255
    test = load("cifar10", "test")
    for run in runs:
        verdicts = keeper(run, 200, "cifar10", eps)
        monkeypatch.setattr("os.fsync", lambda file: None)  # a thousand small files
        for i in range(200):
            image = test.pixels(slice(i, i + 1))[0]
            noise = torch.randint(0, 2, image.shape, generator=generator) * 2 - 1
            bounds = [-3.14159] * 9
            verdicts.keep(
                i, Result(
                    "falsified", "branch", index=i, label=int(test.labels[i]), eps=eps, witness=image + eps * noise,
                    against=list(range(9)), crown=bounds, alpha=bounds, neurons=16634, unstable={"2": 4000, "4": 500},
                )
            )  # fmt: skip
    begun = time.monotonic()
    size = write_report(runs, tmp_path / "r.html").stat().st_size
    assert size < 10e6
    assert time.monotonic() - begun < 60


def decoded(uri: str | None) -> np.ndarray:
    assert uri is not None
    head, _, body = uri.partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(BytesIO(base64.b64decode(body))))


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_come_back(channels: int) -> None:
    pixels = torch.randint(0, 256, (channels, 6, 5), generator=torch.Generator().manual_seed(0))
    shown = decoded(picture(pixels.float() / 255))
    assert np.array_equal(shown.reshape(6, 5, channels), pixels.permute(1, 2, 0).numpy())


def test_other_shapes_have_no_picture() -> None:
    assert picture(torch.zeros(5)) is None
    assert picture(torch.zeros(2, 4, 4)) is None


def test_the_difference_is_magnified_to_black_and_white() -> None:
    image = torch.full((1, 1, 3), 0.5)
    witness = image + torch.tensor([[[-0.02, 0.0, 0.02]]])
    assert decoded(magnified_difference(image, witness, 0.02)).ravel().tolist() == pytest.approx([0, 128, 255], abs=1)
    assert magnified_difference(image, witness, 0.0) is None
