"""The public functions on a model and data of the user's own, from training to the report."""

import inspect
import json
import tempfile

import pytest
import torch
import yaml
from sklearn.datasets import load_breast_cancer
from torch import nn
from typer.testing import CliRunner

import lingraft
from lingraft import LingraftError
from lingraft.cli import app
from lingraft.cli import demo as demo_command
from lingraft.cli import evaluate as evaluate_command
from lingraft.cli import graft as graft_command
from lingraft.cli import score as score_command
from lingraft.cli import select as select_command
from lingraft.cli import train as train_command
from lingraft.data import load
from lingraft.model.sites import grafted_activations
from lingraft.runs import Run
from lingraft.training import METHODS, Method

EPS = 0.02

COMMANDS = {
    "train": train_command.train,
    "evaluate": evaluate_command.evaluate,
    "score": score_command.score,
    "select": select_command.select,
    "graft_and_tune": graft_command.graft,
    "demo": demo_command.demo,
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.hidden = nn.Linear(64, 16)
        self.out = nn.Linear(16, 10)

    def forward(self, x):
        x = torch.relu(self.conv(x)).flatten(1)
        return self.out(torch.relu(self.hidden(x)))


@pytest.fixture(scope="module")
def data():
    return load("digits", "train").take(400)


@pytest.fixture(scope="module")
def test_images():
    return load("digits", "test").take(60)


@pytest.fixture(scope="module")
def story(tmp_path_factory, data, test_images):
    """Both models and their runs, after everything was done."""
    folder = tmp_path_factory.mktemp("story")
    plain, grafted = folder / "plain", folder / "grafted"
    torch.manual_seed(0)
    model = lingraft.train(Net(), data, eps=EPS, epochs=5, batch=16, lr=0.05, run=plain)
    scores = lingraft.score(model, data, eps=EPS, score_images=100, bound_images=10)
    linear = lingraft.graft(model, lingraft.select(scores, 0.5))
    linear = lingraft.train(linear, data, eps=EPS, epochs=1, batch=32, run=grafted, parent=plain)
    few = test_images.take(8)
    for net, run in ((model, plain), (linear, grafted)):
        lingraft.evaluate(net, test_images, eps=EPS, steps=5, restarts=1, run=run)
        lingraft.verify(net, few.pixels(), few.labels, eps=EPS, timeout=5, workers=0, run=run)
    return {"models": (model, linear), "runs": (plain, grafted)}


def test_the_grafted_model_has_the_share_of_lines_that_was_asked_for(story):
    sites = grafted_activations(story["models"][1]).values()
    assert sum(site.grafted for site in sites) == round(0.5 * (64 + 16))
    description = Run(story["runs"][1]).describe()
    assert description.parent == str(story["runs"][0])
    assert sum(site.grafted for site in description.grafted) == 40


def test_a_run_gives_back_the_model_it_keeps(story, test_images):
    for model, run in zip(story["models"], story["runs"], strict=True):
        loaded = lingraft.load(run, model=Net())
        assert torch.equal(loaded(test_images.pixels()), model(test_images.pixels()))


def test_verdicts_and_figures_are_kept_and_used_again(story, test_images):
    run, model, few = Run(story["runs"][0]), story["models"][0], test_images.take(8)
    before = run.verdicts_path.read_bytes()
    again = lingraft.verify(model, few.pixels(), few.labels, eps=EPS, timeout=5, workers=0, run=run)
    assert run.verdicts_path.read_bytes() == before
    (figures,) = run.summary().as_dict()["verification"].values()
    assert figures["verified"] == sum(result.verdict == "verified" for result in again) > 0
    fresh = lingraft.verify(model, few.pixels(), few.labels, eps=EPS, timeout=5, workers=0)
    assert [r.verdict for r in fresh] == [r.verdict for r in again]


def test_more_images_are_added_to_those_that_a_run_has_verdicts_about(tmp_path, test_images):
    torch.manual_seed(0)
    model, pixels, labels = Net().eval(), test_images.pixels(), test_images.labels
    run = lingraft.save(model, tmp_path / "mine", (1, 8, 8))

    def ask(which: slice) -> list[int]:
        results = lingraft.verify(model, pixels[which], labels[which], eps=0.001, timeout=5, workers=0, run=run)
        assert [result.label for result in results] == labels[which].tolist()
        return [result.index for result in results]

    assert ask(slice(0, 3)) == [0, 1, 2]
    assert ask(slice(0, 5)) == [0, 1, 2, 3, 4], "goes on from those that are there"
    assert ask(slice(10, 12)) == [5, 6], "others come behind them"
    assert ask(slice(1, 3)) == [1, 2], "a part keeps its numbers"
    assert len(run.verdicts_path.read_text().splitlines()) == 7, "no image is done twice"
    row = lingraft.write_report([run], tmp_path / "table.csv").read_text().splitlines()[1]
    assert ",7," in row


def test_the_report_shows_the_images_of_the_user(story, tmp_path):
    page = lingraft.write_report(story["runs"], tmp_path / "report.html").read_text()
    table = lingraft.write_report(story["runs"], tmp_path / "table.csv").read_text()
    assert page.count("data:image/png") >= 8
    assert len(table.splitlines()) == 3
    assert "–" not in table.splitlines()[1].split(",")[5]  # SA was measured on the same data


def test_training_again_changes_nothing_but_other_data_are_refused(story, data):
    run, model = story["runs"][0], story["models"][0]
    again = lingraft.train(Net(), data, eps=EPS, epochs=5, batch=16, lr=0.05, run=run)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))
    with pytest.raises(LingraftError, match="other settings"):
        lingraft.train(Net(), data.take(399), eps=EPS, epochs=5, batch=16, lr=0.05, run=run)
    with pytest.raises(LingraftError, match="other settings"):
        lingraft.train(Net(), data, data.take(50), eps=EPS, epochs=5, batch=16, lr=0.05, run=run)


def test_training_goes_on_with_the_same_grafted_neurons_only(story, data):
    (model, linear), run = story["models"], story["runs"][1]
    how = {"eps": EPS, "epochs": 1, "batch": 32, "run": run, "parent": story["runs"][0]}
    same = {name: site.mask for name, site in grafted_activations(linear).items()}
    again = lingraft.train(lingraft.graft(model, same), data, **how)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), linear.parameters(), strict=True))
    other = {name: ~mask for name, mask in same.items()}
    with pytest.raises(LingraftError, match=r"other settings \(mask"):
        lingraft.train(lingraft.graft(model, other), data, **how)


def test_a_run_keeps_nothing_of_another_model(story, test_images):
    torch.manual_seed(1)
    other, few = Net().eval(), test_images.take(2)
    with pytest.raises(LingraftError, match="another model"):
        lingraft.verify(other, few.pixels(), few.labels, eps=EPS, run=story["runs"][0])
    with pytest.raises(LingraftError, match="another model"):
        lingraft.evaluate(other, few, eps=EPS, run=story["runs"][0])
    boxes = {"lower": few.pixels(), "upper": few.pixels()}
    with pytest.raises(LingraftError, match="within eps"):
        lingraft.verify(story["models"][0], None, few.labels, **boxes, run=story["runs"][0])


def test_save_keeps_a_model_that_was_trained_elsewhere(tmp_path, test_images):
    torch.manual_seed(0)
    model, few = Net().eval(), test_images.take(4)
    run = lingraft.save(model, tmp_path / "mine", (1, 8, 8), eps=0.01)
    assert run.describe().classes == 10
    lingraft.verify(model, few.pixels(), few.labels, eps=0.01, timeout=5, workers=0, run=run)
    assert len(run.verdicts_path.read_text().splitlines()) == 4
    assert json.loads((tmp_path / "mine" / "model.json").read_text())["eps"] == 0.01
    with pytest.raises(LingraftError, match="holds a model already"):
        lingraft.save(model, tmp_path / "mine", (1, 8, 8))


def test_a_score_of_ones_own(data):
    class First:
        def score(self, model, images):
            return {s.name: torch.arange(s.neurons).double().view(s.shape) for s in lingraft.sites(model, (1, 8, 8))}

    scores = lingraft.score(Net(), data, eps=0.0, significance=First(), bounds="intervals", bound_images=2)
    mask = lingraft.select(scores, 0.1, gamma=0.0)
    assert scores.facts["significance"] == "First"
    assert [int(m.flatten()[:4].sum()) for m in mask.values()] == [4, 4]  # the neurons that score least


def test_a_score_that_forgets_a_site_is_refused(data):
    class Short:
        def score(self, model, images):
            return {}

    with pytest.raises(LingraftError, match="sites and shapes"):
        lingraft.score(Net(), data, eps=EPS, significance=Short())


def test_a_model_that_gives_two_things_is_refused(data, tmp_path):
    class Two(Net):
        def forward(self, x):
            return super().forward(x), x

    with pytest.raises(LingraftError, match=r"logits \(N, classes\), not a tuple"):
        lingraft.train(Two(), data, eps=EPS, run=tmp_path / "run")


def test_a_class_and_what_is_no_radius_are_refused(data, tmp_path):
    with pytest.raises(LingraftError, match="made by calling its class"):
        lingraft.train(nn.Flatten, data, eps=0.1, run=tmp_path / "run")
    for eps, message in (
        ("8 of 255", "not a number"),
        (8, "more than the whole pixel range"),
        (torch.full((400,), 0.1), r"shape \(400,\).*only verify and evaluate take a radius for each sample"),
        (torch.full((1, 8, 7), 0.1), "Here it must be a number, or have one for each feature"),
        (-0.1, "at least 0"),
    ):
        with pytest.raises(LingraftError, match=message):
            lingraft.train(Net(), data, eps=eps, run=tmp_path / "run")
    with pytest.raises(LingraftError, match=r"bfloat16.*model\.float\(\)"):
        lingraft.train(Net().bfloat16(), data, eps=0.1, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_line_lr_of_a_plain_model_is_refused(data, tmp_path):
    with pytest.raises(LingraftError, match="line_lr"):
        lingraft.train(Net(), data, eps=EPS, run=tmp_path, line_lr=0.1)


def test_certified_training_has_settings_of_its_own(data, tmp_path):
    torch.manual_seed(0)
    lingraft.train(Net(), data.take(100), eps=0.01, epochs=1, run=tmp_path / "run", method="ibp")
    settings = Run(tmp_path / "run").summary().training.settings
    assert (settings["optimizer"], settings["lr"], settings["schedule"]) == ("adam", 0.002, "one-cycle")


def test_without_a_run_the_same_is_trained_and_nothing_is_kept(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    tempfile.tempdir = None  # read the variable again
    how = {"eps": EPS, "epochs": 2, "batch": 32}
    torch.manual_seed(0)
    net = Net()
    epochs: list[int] = []
    alone = lingraft.train(net, data.take(100), **how, on_epoch=lambda history: epochs.append(history.last.epoch))
    assert epochs == [1, 2]
    assert list(tmp_path.rglob("*")) == [tmp_path / "temporary"]
    kept = lingraft.train(net, data.take(100), **how, run="run", on_epoch=())
    assert all(torch.equal(a, b) for a, b in zip(alone.parameters(), kept.parameters(), strict=True))
    mask = {site.name: torch.ones(site.shape, dtype=torch.bool) for site in lingraft.sites(net, (1, 8, 8))}
    tuned = lingraft.train(lingraft.graft(net, mask), data.take(100), **how)
    assert sum(site.grafted for site in grafted_activations(tuned).values()) == 80
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "temporary"]
    tempfile.tempdir = None


def test_a_run_that_was_stopped_early_is_finished(data, tmp_path):
    run, calls = Run(tmp_path / "run"), []

    def stop(history):
        calls.append(history.last.epoch)
        return True

    first = lingraft.train(Net(), data.take(100), eps=EPS, epochs=3, run=run, on_epoch=[stop])
    again = lingraft.train(Net(), data.take(100), eps=EPS, epochs=3, run=run, on_epoch=[stop])
    assert calls == [1]
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert run.summary().training.epochs == 1
    assert run.summary().training.settings["epochs"] == 3


def test_settings_name_what_only_python_can_give(data, tmp_path):
    lingraft.train(Net(), data.take(100), eps=EPS, epochs=1, run=tmp_path / "run", loss=Squared(), kappa=(1, 0.5))
    text = (tmp_path / "run" / "settings.yaml").read_text()
    assert "not in this file: data, model, loss" in text
    assert yaml.safe_load(text)["kappa"] == "1,0.5"
    assert yaml.safe_load(text)["eps"] == EPS


class Squared:
    """A loss of one's own: the squared distance of the probabilities from the label's."""

    def __call__(self, model, images, labels, generator):
        probabilities = model(images).softmax(1)
        loss = ((probabilities - nn.functional.one_hot(labels, probabilities.shape[1])) ** 2).sum(1).mean()
        return loss, {"squared": loss.detach()}


def test_a_loss_of_ones_own(data, tmp_path):
    run = Run(tmp_path / "run")
    lingraft.train(Net(), data.take(100), eps=EPS, epochs=1, run=run, loss=Squared())
    assert 0 < json.loads(run.history_path.read_text())["squared"] < 2
    with pytest.raises(LingraftError, match="loss: Squared there"):
        lingraft.train(Net(), data.take(100), eps=EPS, epochs=1, run=run)


def test_a_method_of_ones_own_has_a_name(data, tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "squared", Method("squared distance", lambda config: Squared()))
    run = Run(tmp_path / "run")
    lingraft.train(Net(), data.take(100), eps=EPS, epochs=1, run=run, method="squared")
    assert run.summary().training.settings["method"] == "squared"
    assert "squared" in json.loads(run.history_path.read_text())


@pytest.mark.slow
def test_the_command_and_the_function_train_the_same(tmp_path):
    how = ["--epochs", "1", "--batch", "256", "--lr", "0.05", "--validation-images", "20", "--device", "cpu"]
    words = ["train", "--data", "digits", "--model", "digits-cnn", *how, "-o", str(tmp_path / "command")]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    settings = {"epochs": 1, "batch": 256, "lr": 0.05, "validation_images": 20}
    model = lingraft.train("digits-cnn", "digits", run=tmp_path / "function", device="cpu", **settings)
    theirs = lingraft.load(tmp_path / "command")
    assert all(torch.equal(a, b) for a, b in zip(theirs.parameters(), model.parameters(), strict=True))
    ours, other = (Run(tmp_path / name) for name in ("function", "command"))
    assert ours.summary().training.settings == other.summary().training.settings
    assert ours.describe() == other.describe()
    assert (ours.figures / "history.svg").exists()


#: Options that a command line cannot give as the function takes them, and what they say by default.
WRITTEN = {"gamma": "2,1.5,1,0", "kappa": "0,0", "regularize": None, "device": "auto"}


@pytest.mark.parametrize("name", COMMANDS)
def test_options_and_defaults_are_those_of_the_commands(name):
    function = inspect.signature(getattr(lingraft, name)).parameters
    optional = {option: p.default for option, p in function.items() if p.default is not inspect.Parameter.empty}
    for option, parameter in inspect.signature(COMMANDS[name]).parameters.items():
        if option in WRITTEN:
            assert parameter.default == WRITTEN[option]
        elif option in optional and option != "out":  # of the demo a Path
            assert optional[option] == parameter.default, option
        elif option not in ("folder", "model", "as_json", "config"):  # --model says with what code RUN is loaded
            assert option in function or (name, option) == ("train", "out"), option


def cancer():
    """Rows of a table, standardized: 30 features of any size, two classes."""
    rows, labels = load_breast_cancer(return_X_y=True)
    rows = (rows - rows.mean(0)) / rows.std(0)
    return (rows[:200], labels[:200]), (rows[300:360], labels[300:360])


def table_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(30, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fat", "mtl-ibp"])
def test_the_whole_way_of_a_table(tmp_path, method):
    """Train, score, graft, fine-tune, evaluate, verify, report: a radius and a range for each feature."""
    train, test = cancer()
    rows = torch.tensor(train[0])
    eps = 0.1 * torch.linspace(0, 1, 30)
    clip = None if method == "fat" else (rows.amin(0) - 9, rows.amax(0) + 9)
    plain, grafted = tmp_path / "plain", tmp_path / "grafted"
    model = lingraft.train(
        table_net(),
        train,
        eps=eps,
        clip=clip,
        epochs=10,
        batch=16,
        lr=0.1 if clip is None else 0.01,
        method=method,
        run=plain,
    )
    scores = lingraft.score(model, train, eps=eps, clip=clip, score_images=100, bound_images=10, instability="harm")
    linear = lingraft.graft(model, lingraft.select(scores, 0.5))
    linear = lingraft.train(
        linear, train, eps=eps, clip=clip, epochs=1, batch=32, method=method, run=grafted, parent=plain
    )
    described = Run(grafted).describe()
    assert described.eps.tensor.tolist() == eps.double().tolist(), "the run keeps it whole"
    assert (described.clip is None) == (clip is None)
    # from now on radius and range are those of the run
    accuracy = lingraft.evaluate(linear, test, steps=5, restarts=1, run=grafted)
    assert accuracy.sa > 0.85
    assert accuracy.ra <= accuracy.sa
    few = torch.tensor(test[0]).float()
    found = lingraft.verify(linear, few[:12], test[1][:12], timeout=10, workers=0, run=grafted)
    assert found.summary.verified > 5
    assert found.summary.va <= accuracy.sa + 0.2
    again = lingraft.verify(linear, 20, data=test, eps=eps, clip=clip, timeout=10, workers=0, run=grafted)
    assert [r.verdict for r in again[:12]] == [r.verdict for r in found]
    assert len(Run(grafted).verdicts_path.read_text().splitlines()) == 20, "the first 12 were known"
    other = lingraft.verify(linear, few[:2], test[1][:2], eps=0 * eps + 0.01, workers=0, run=grafted)
    assert len(Run(grafted).verdicts_path.read_text().splitlines()) == 22, "another tensor is another question"
    assert len({found.figures["eps"], other.figures["eps"]}) == 2
    page = lingraft.write_report([plain, grafted], tmp_path / "report.html").read_text()
    assert found.figures["eps"] in page


@pytest.mark.slow
def test_the_way_of_sequences(tmp_path):
    """Samples of shape (T, features), in [0, 100]."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (120,), generator=generator)
    sequences = 30 + 20 * torch.rand(120, 5, 3, generator=generator) + 20 * labels[:, None, None]
    data = lingraft.ImageSet(sequences, labels, clip=(0, 100))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(15), nn.Linear(15, 8), nn.ReLU(), nn.Linear(8, 2))
    model = lingraft.train(net, data, eps=2, epochs=3, batch=16, lr=0.05, method="trades", run=tmp_path / "run")
    assert lingraft.evaluate(model, data, eps=2, steps=5, restarts=1).ra > 0.8
    scores = lingraft.score(model, data, eps=2, bound_images=5, score_images=20)
    assert {name: tuple(values.shape) for name, values in scores.significance.items()} == {"3": (8,)}
    found = lingraft.verify(model, data.take(6), eps=torch.full((5, 1), 2.0), workers=0)
    assert found.summary.verified >= 4
    again = lingraft.verify(model, "0:6", data=data, workers=0, run=tmp_path / "run")
    assert [r.verdict for r in again] == [r.verdict for r in found]
    with pytest.raises(LingraftError, match="augment crops and flips images"):
        lingraft.train(net, data, eps=2, epochs=1, augment=True, run=tmp_path / "other")
