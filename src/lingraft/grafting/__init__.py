"""Grafting: which neurons to make linear, the surgery that does it, and the training that follows."""

from lingraft.grafting.activation import GraftedActivation
from lingraft.grafting.sites import Site, grafted_activations, sites
from lingraft.grafting.surgery import graft, masks, prepared, pruned
from lingraft.grafting.tracing import trace

__all__ = ["GraftedActivation", "Site", "graft", "grafted_activations", "masks", "prepared", "pruned", "sites", "trace"]
