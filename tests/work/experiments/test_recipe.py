"""Recipes are read, checked, and wrong ones are refused with a reason."""

import pytest
import yaml

from lingraft.data import DATASETS
from lingraft.errors import LingraftError
from lingraft.grafting import METHODS
from lingraft.model import zoo
from lingraft.work.experiments import Recipe, recipes, scales
from lingraft.work.experiments.recipe import parse

GOOD = {
    "title": "a table",
    "paper": "Table 9",
    "about": "what it shows",
    "columns": ["va", "sa"],
    "networks": [{"name": "n", "model": "cnn-b", "data": "cifar10", "eps": "2/255"}],
    "rows": [{"name": "r", "graft": {"method": "random", "ratio": 0.5}, "paper": {"n": [1.0, None]}}],
}


def changed(**changes: object) -> str:
    return yaml.safe_dump({**GOOD, **changes})


def test_a_recipe_is_read():
    recipe = parse(changed(), Recipe, "a.yaml")
    assert recipe.rows[0].paper == {"n": [1.0, None]}
    assert recipe.measure == ["evaluate", "verify"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1, 2", "not YAML"),
        ("- a\n- b", "names and values"),
        ("", "names and values"),
        (changed(columns=["vaa"]), "unknown column 'vaa'.*Did you mean 'va'"),
        (changed(rows=[]), "rows"),
        (changed(title=None), "title"),
        (changed(speed=9), "speed"),
        (changed(measure=["prove"]), "unknown measure"),
        (changed(rows=[{"name": "r", "paper": {"n": [1.0]}}]), "1 figures of the paper for 2 columns"),
        (changed(rows=[{"name": "r", "paper": {"m": [1.0, 2.0]}}]), "unknown network 'm'"),
        (changed(rows=[{"name": "r"}, {"name": "r"}]), "same name"),
        (changed(rows=[{"name": "r", "vary": {"option": "slope", "values": [1.0]}}]), "only options of graft"),
        ("a: !!python/object/apply:os.system ['true']", "not YAML"),
        ("a: " + "[" * 3000, "not YAML"),
    ],
)
def test_a_wrong_recipe_is_refused(text: str, reason: str):
    with pytest.raises(LingraftError, match=reason):
        parse(text, Recipe, "a.yaml")


def test_every_recipe_names_things_that_exist():
    for recipe in recipes().values():
        every = [*recipe.networks, *(network for found in recipe.networks_at.values() for network in found)]
        names = {network.name for network in recipe.networks}
        for network in every:
            assert network.model in zoo.MODELS
            assert network.data in DATASETS
            assert network.instead_of is None or network.instead_of in names
        for row in recipe.rows:
            assert row.graft is None or row.graft["method"] in METHODS
            assert set(row.only) <= set(scales())
            assert {name for found in row.only.values() for name in found} <= {network.name for network in every}


def test_all_of_the_paper_is_there():
    """The tables and figures that the paper has, by what they are about."""
    assert set(recipes()) >= {
        "main", "eps8", "criterion", "initialization", "weights", "regularizers", "zero-gradual", "certified", "corners",
        "sigmoid", "regions", "unstable", "bounds", "masks", "pruning", "time",
    }  # fmt: skip
