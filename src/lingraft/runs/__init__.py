"""Run folders: a model and everything measured of it."""

from lingraft.runs.description import GraftedSite, ModelDescription, versions
from lingraft.runs.measured import RunSummary
from lingraft.runs.run import Run, load
from lingraft.runs.tensors import load_tensors, load_weights, save_tensors

__all__ = [
    "GraftedSite",
    "ModelDescription",
    "Run",
    "RunSummary",
    "load",
    "load_tensors",
    "load_weights",
    "save_tensors",
    "versions",
]
