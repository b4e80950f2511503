"""The paper's tables and figures as recipes that combine the uses of lingraft."""

from lingraft.work.experiments.plan import Plan, make_plan
from lingraft.work.experiments.recipe import Recipe, Scale, recipes, scales
from lingraft.work.experiments.reproduce import Reproduction
from lingraft.work.experiments.results import Result, collect

__all__ = ["Plan", "Recipe", "Reproduction", "Result", "Scale", "collect", "make_plan", "recipes", "scales"]
