"""Bounds over a box of images that are functions of the weights: what certified training and its kin descend on.

They are batched, differentiable and run where the model is; they are as wide as intervals and CROWN are, but rounded as
the model's own type rounds. Proofs are the business of `lingraft.solver`.
"""

from lingraft.training.differentiable.crown import crown_cross_entropy, crown_lower
from lingraft.training.differentiable.graph import BoundedGraph, clean_pass, graph_of
from lingraft.training.differentiable.intervals import Interval, interval_bounds, site_intervals
from lingraft.training.differentiable.latent import attacked_margins
from lingraft.training.differentiable.margins import margin_intervals, worst_cross_entropy

__all__ = [
    "BoundedGraph",
    "Interval",
    "attacked_margins",
    "clean_pass",
    "crown_cross_entropy",
    "crown_lower",
    "graph_of",
    "interval_bounds",
    "margin_intervals",
    "site_intervals",
    "worst_cross_entropy",
]
