"""What a recipe comes down to: stages that are shared, named by what they depend on."""

from pathlib import Path

import pytest

from lingraft.errors import LingraftError
from lingraft.work.experiments import make_plan, recipes, scales
from lingraft.work.experiments.plan import minutes
from lingraft.work.experiments.stage import Stage

ROOT = Path("runs")


def plan(name: str, scale: str = "laptop", **options: object):
    return make_plan(name, recipes()[name], scale, scales()[scale], **options)  # type: ignore[arg-type]


def keys(*names: str) -> list[set[str]]:
    return [{stage.key for stage in plan(name).stages} for name in names]


def test_a_baseline_is_trained_once_for_all_rows():
    stages = plan("main", networks=["CNN-B"], rows=["grafting"]).stages
    trained = [stage for stage in stages if stage.command == "train"]
    grafted = [stage for stage in stages if stage.command == "graft"]
    assert len(trained) == 1
    assert len(grafted) == 4
    assert all(stage.parent is trained[0] or stage.parent == trained[0] for stage in grafted)


def test_tables_share_runs():
    main, criterion, weights = keys("main", "criterion", "weights")
    assert len(main & criterion) >= 3  # the baseline, 50 % grafted, and what was measured of it
    assert len(main & weights) >= 3


def test_each_stage_comes_after_what_it_needs():
    for name in recipes():
        seen: set[tuple[str, str]] = set()
        for stage in plan(name, "smoke").stages:
            assert stage.parent is None or (stage.parent.command, stage.parent.key) in seen
            seen.add((stage.command, stage.key))


def test_a_key_depends_on_every_setting_and_on_the_parent():
    first = Stage("train", {"epochs": 1, "lr": 0.1}, title="a")
    same = Stage("train", {"lr": 0.1, "epochs": 1}, title="b")
    other = Stage("train", {"epochs": 2, "lr": 0.1}, title="a")
    assert first.key == same.key != other.key
    assert Stage("graft", {"ratio": 0.5}, first).key != Stage("graft", {"ratio": 0.5}, other).key
    assert Stage("graft", {"ratio": 0.5}, first).key != Stage("verify", {"ratio": 0.5}, first).key


def test_arguments_are_a_command_line():
    base = Stage("train", {"data": "digits", "model": "digits-cnn"}, title="digits")
    grafted = Stage("graft", {"ratio": 0.5, "gradual": True, "rescore": False}, base, title="g")
    folder = grafted.folder(ROOT)
    assert grafted.arguments(ROOT) == [
        "graft", str(base.folder(ROOT)), "--ratio", "0.5", "--gradual", "--out", str(folder),
    ]  # fmt: skip
    assert Stage("verify", {"images": 3}, grafted).arguments(ROOT) == ["verify", str(folder), "--images", "3"]


def test_seeds_make_separate_runs():
    one, three = plan("zero-gradual", seeds=1), plan("zero-gradual", seeds=3)
    assert len(three.cells) == 3 * len(one.cells)
    assert len({cell.run.key for cell in three.cells}) == len(three.cells)


def test_a_varied_option_makes_a_row_a_value():
    values = [cell.value for cell in plan("initialization").cells if cell.row.name == "slope"]
    assert values == recipes()["initialization"].rows[0].vary.values  # type: ignore[union-attr]


def test_a_scale_may_depend_on_data_model_and_method():
    stages = {stage.title: stage.options for stage in plan("main").stages if stage.command == "graft"}
    assert stages["conv-big-mnist-grafting-50"]["bound-images"] == 20
    assert "bound-images" not in stages["cnn-b-cifar10-grafting-50"]
    trained = {stage.options.get("method"): stage for stage in plan("certified").stages if stage.command == "train"}
    assert trained["ibp"].options["epochs"] > trained[None].options["epochs"]
    assert "--weight-decay" not in trained["ibp"].arguments(ROOT)  # that of the data set is for adversarial training
    assert "--lr" in trained[None].arguments(ROOT)
    assert "--lr" not in trained["ibp"].arguments(ROOT)  # the default of certified training


def test_a_scale_may_depend_on_data_and_method_together():
    trained = {
        (stage.options["data"], stage.options.get("method")): stage
        for stage in plan("front", rows=["FAT", "SABR, λ = 0.4"]).stages
        if stage.command == "train"
    }
    assert trained["mnist", "sabr"].options["epochs"] < trained["cifar10", "sabr"].options["epochs"] == 30
    assert "--initialization" not in trained["cifar10", "sabr"].arguments(ROOT)  # that of certified training
    assert "--initialization" in trained["cifar10", None].arguments(ROOT)
    assert trained["mnist", "sabr"].options["epochs"] > trained["mnist", None].options["epochs"]


def test_rates_of_fine_tuning_are_those_of_the_optimizer():
    rows = ["MTL-IBP, α = 0.01 + grafting 50 % by count", "MTL-IBP, α = 0.0005, by SGD + grafting 50 % by count"]
    found = plan("front", networks=["CNN-B, CIFAR-10"], rows=rows).stages
    sgd, adam = (stage.options for stage in found if stage.command == "graft")
    assert (adam["lr"], adam["line-lr"]) == (0.0005, 0.0005)
    assert (sgd["lr"], sgd["line-lr"]) == (0.005, 0.05)
    assert sgd["epochs"] == adam["epochs"]


def test_a_recipe_may_verify_less_at_a_scale():
    usual = {stage.options["images"] for stage in plan("main").stages if stage.command == "verify"}
    fewer = {stage.options["images"] for stage in plan("certified").stages if stage.command == "verify"}
    assert max(fewer) < max(usual)


def test_a_network_may_be_verified_on_fewer_images():
    images = {cell.network.name: cell.measures[-1].options["images"] for cell in plan("main").cells}
    assert images["ConvHuge, CIFAR-10"] < images["ConvBig, MNIST"] < images["CNN-B, CIFAR-10"]
    paper = {stage.options["images"] for stage in plan("certified", "paper").stages if stage.command == "verify"}
    assert paper == {scales()["paper"].verify["images"]}


def test_nothing_that_fits_is_an_error():
    with pytest.raises(LingraftError, match="Its networks are"):
        plan("main", networks=["VGG"])
    with pytest.raises(LingraftError, match="rows of both kinds"):
        plan("corners", rows=["Baseline"])
    with pytest.raises(LingraftError, match="at least 1"):
        plan("main", seeds=0)


def test_the_paper_takes_longer_than_a_laptop():
    for name in recipes():
        assert plan(name, "smoke").minutes < plan(name, "laptop").minutes < plan(name, "paper").minutes


def test_training_without_gradalign_takes_half_the_time():
    def epoch(name: str, row: str) -> float:
        found = plan(name, networks=["CNN-B, CIFAR-10"], rows=[row])
        stage = next(stage for stage in found.stages if stage.command == "train")
        return minutes(stage, found.scale) / int(stage.options["epochs"])

    assert epoch("main", "Baseline") == epoch("eps8", "Baseline") / 2 == epoch("front", "MTL-IBP, α = 0.01") / 2


def test_a_graft_takes_the_time_of_the_bounds_that_choose_and_compare():
    found = plan("main", networks=["ResNet-4B"], rows=["Grafting 50 %"])
    (stage,) = (stage for stage in found.stages if stage.command == "graft")
    training = found.scale.minutes["resnet-4b"] / 2 * int(stage.options["epochs"])
    bounds = found.scale.bounding["resnet-4b"] / 60 * 3 * int(stage.options["bound-images"])
    assert minutes(stage, found.scale) == pytest.approx(training + bounds)
    assert bounds > 1


def test_corner_cases_compare_all_seeds():
    found = plan("corners")
    stage = found.stages[-1]
    assert stage.command == "corners"
    baselines = [cell.run.folder(ROOT) for cell in found.cells if cell.row.graft is None]
    grafted = [cell.run.folder(ROOT) for cell in found.cells if cell.row.graft is not None]
    assert len(baselines) == len(grafted) == recipes()["corners"].corners
    words = stage.arguments(ROOT)
    assert words[1 : 1 + len(baselines)] == list(map(str, baselines))
    assert words[words.index("--against") + 1 :][: len(grafted)] == list(map(str, grafted))


def rows(*texts: str) -> list[str]:
    return [cell.name for cell in plan("main", networks=["CNN-B"], rows=texts).cells]


def test_a_row_is_meant_by_its_name_however_it_is_written():
    assert rows("grafting-50") == rows("Grafting 50 %") == rows("GRAFTING 50") == ["Grafting 50 %"]


def test_a_part_of_a_name_means_all_rows_that_have_it():
    assert rows("grafting")[:2] == ["Random grafting 50 %", "Grafting 50 %"]
    assert len(rows()) > len(rows("grafting")) > len(rows("baseline", "grafting-50")) == 2
