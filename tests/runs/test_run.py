"""Run folders."""

import json
import os
from pathlib import Path

import pytest
import torch

import lingraft
from lingraft import LingraftError
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run, load_tensors, save_tensors


def digits_run(folder: Path) -> tuple[Run, torch.nn.Module]:
    torch.manual_seed(0)
    model = zoo.build("digits-cnn", mean=[0.3], std=[0.4])
    run = Run(folder)
    run.write_description(
        ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10, mean=[0.3], std=[0.4])
    )
    run.save_weights(model)
    return run, model


def test_load_gives_the_model_back(tmp_path: Path) -> None:
    run, model = digits_run(tmp_path / "run")
    loaded = lingraft.load(tmp_path / "run")
    images = torch.rand(4, 1, 8, 8)
    with torch.no_grad():
        assert torch.equal(model(images), loaded(images))
    assert not loaded.training
    assert run.describe().versions["lingraft"] == lingraft.__version__


def test_a_model_of_your_own(tmp_path: Path) -> None:
    run, _ = digits_run(tmp_path)
    run.write_description(ModelDescription(architecture=None, input_shape=(1, 8, 8), classes=10))
    with pytest.raises(LingraftError, match="Pass it"):
        lingraft.load(tmp_path)
    own = zoo.build("digits-cnn")
    assert lingraft.load(tmp_path, model=own) is own
    with pytest.raises(LingraftError, match="do not fit"):
        lingraft.load(tmp_path, model=zoo.build("sigmoid-cnn"))


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(LingraftError, match="lingraft train"):
        lingraft.load(tmp_path / "nothing")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"architecture": "digits-cnn"}', '{"format": 1, "x": 2}'])
def test_a_damaged_description(tmp_path: Path, content: str) -> None:
    digits_run(tmp_path)
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(LingraftError, match=r"model\.json"):
        lingraft.load(tmp_path)


def test_a_newer_format(tmp_path: Path) -> None:
    digits_run(tmp_path)
    content = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**content, "format": 99, "crc32": None}))
    with pytest.raises(LingraftError, match="99"):
        lingraft.load(tmp_path)


def test_damaged_and_missing_weights(tmp_path: Path) -> None:
    run, model = digits_run(tmp_path)
    whole = run.weights_path.read_bytes()
    run.weights_path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LingraftError, match="damaged"):
        lingraft.load(tmp_path)
    run.weights_path.unlink()
    with pytest.raises(LingraftError, match="missing"):
        lingraft.load(tmp_path)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    run.save_weights(model)
    with pytest.raises(LingraftError, match="NaN"):
        lingraft.load(tmp_path)


def test_a_pickle_is_not_loaded(tmp_path: Path) -> None:
    run, model = digits_run(tmp_path)
    torch.save(model.state_dict(), run.weights_path)
    with pytest.raises(LingraftError, match="damaged"):
        lingraft.load(tmp_path)


def test_tensors_and_metadata_come_back(tmp_path: Path) -> None:
    tensors = {"a": torch.rand(2, 3).T, "b": torch.tensor([True, False])}
    save_tensors(tmp_path / "x.safetensors", tensors, {"settings": {"eps": 0.1, "list": [1, None]}})
    back, metadata = load_tensors(tmp_path / "x.safetensors")
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)
    assert metadata == {"settings": {"eps": 0.1, "list": [1, None]}}
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "x.safetensors").stat().st_mode & 0o777 == 0o666 & ~umask


def test_summary_sections_are_replaced_one_by_one(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.add_to_summary("a", {"x": 1})
    run.add_to_summary("b", {"y": 2})
    run.add_to_summary("a", {"z": 3})
    assert run.summary().as_dict() == {"a": {"z": 3}, "b": {"y": 2}}


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


def test_an_unwritable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LingraftError, match="cannot write"):
        digits_run(tmp_path / "file")


def test_leftovers_of_a_killed_save_are_removed(tmp_path: Path) -> None:
    run, _ = digits_run(tmp_path)
    (tmp_path / ".checkpoint.safetensors.123.part").write_bytes(b"half")
    run.remove_parts()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "model.safetensors"]
