"""lingraft: make trained networks certifiably robust by grafting linearity into them, and prove it.

The names below are the public surface. They are imported on first use, so that `import lingraft` and
`lingraft --help` stay instant while torch is only loaded when something needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lingraft.errors import LingraftError
from lingraft.version import __version__

if TYPE_CHECKING:
    import lingraft.data  # noqa: F401  (a folder that is public as a whole)
    from lingraft.data.images import ImageSet as ImageSet
    from lingraft.formats.onnx_export import export_onnx as export_onnx
    from lingraft.formats.onnx_import import load_onnx as load_onnx
    from lingraft.model.logits import logits as logits
    from lingraft.model.sites import sites as sites
    from lingraft.model.surgery import graft as graft
    from lingraft.model.surgery import pruned as pruned
    from lingraft.report.write import write_report as write_report
    from lingraft.runs import Run as Run
    from lingraft.runs import load as load
    from lingraft.solver.methods import bounds as bounds
    from lingraft.solver.region import Region as Region
    from lingraft.work.checking import check as check
    from lingraft.work.corners import corners as corners
    from lingraft.work.demo import demo as demo
    from lingraft.work.environment import doctor as doctor
    from lingraft.work.evaluate import evaluate as evaluate
    from lingraft.work.experiments.reproduce import list_recipes as list_recipes
    from lingraft.work.experiments.reproduce import reproduce as reproduce
    from lingraft.work.exporting import export as export
    from lingraft.work.front import front as front
    from lingraft.work.gallery import gallery as gallery
    from lingraft.work.graft import graft_and_tune as graft_and_tune
    from lingraft.work.look import list_models as list_models
    from lingraft.work.look import list_runs as list_runs
    from lingraft.work.look import show_network as show_network
    from lingraft.work.look import show_run as show_run
    from lingraft.work.operations import operations as operations
    from lingraft.work.properties import verify_property as verify_property
    from lingraft.work.save import save as save
    from lingraft.work.score import plan as plan
    from lingraft.work.score import score as score
    from lingraft.work.score import select as select
    from lingraft.work.train import train as train
    from lingraft.work.verify import verify as verify
    from lingraft.work.vnncomp.comparison import compare as compare
    from lingraft.work.vnncomp.run_benchmark import benchmark as benchmark

_HOME = {
    "ImageSet": "lingraft.data.images",
    "Region": "lingraft.solver.region",
    "Run": "lingraft.runs",
    "benchmark": "lingraft.work.vnncomp.run_benchmark",
    "bounds": "lingraft.solver.methods",
    "check": "lingraft.work.checking",
    "compare": "lingraft.work.vnncomp.comparison",
    "corners": "lingraft.work.corners",
    "demo": "lingraft.work.demo",
    "doctor": "lingraft.work.environment",
    "evaluate": "lingraft.work.evaluate",
    "export": "lingraft.work.exporting",
    "export_onnx": "lingraft.formats.onnx_export",
    "front": "lingraft.work.front",
    "gallery": "lingraft.work.gallery",
    "graft": "lingraft.model.surgery",
    "graft_and_tune": "lingraft.work.graft",
    "list_models": "lingraft.work.look",
    "list_recipes": "lingraft.work.experiments.reproduce",
    "list_runs": "lingraft.work.look",
    "load": "lingraft.runs",
    "load_onnx": "lingraft.formats.onnx_import",
    "logits": "lingraft.model.logits",
    "operations": "lingraft.work.operations",
    "plan": "lingraft.work.score",
    "pruned": "lingraft.model.surgery",
    "reproduce": "lingraft.work.experiments.reproduce",
    "save": "lingraft.work.save",
    "score": "lingraft.work.score",
    "select": "lingraft.work.score",
    "show_network": "lingraft.work.look",
    "show_run": "lingraft.work.look",
    "sites": "lingraft.model.sites",
    "train": "lingraft.work.train",
    "verify": "lingraft.work.verify",
    "verify_property": "lingraft.work.properties",
    "write_report": "lingraft.report.write",
}

__all__ = ["LingraftError", "__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name == "data":  # lingraft.data.register, load …: the folder itself is public
        return import_module("lingraft.data")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'lingraft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
