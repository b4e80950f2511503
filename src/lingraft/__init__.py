"""lingraft: make trained networks certifiably robust by grafting linearity into them, and prove it.

The names below are the public surface. They are imported on first use, so that `import lingraft` and
`lingraft --help` stay instant while torch is only loaded when something needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from lingraft.data.images import ImageSet as ImageSet
    from lingraft.grafting.sites import sites as sites
    from lingraft.grafting.surgery import graft as graft
    from lingraft.grafting.surgery import pruned as pruned
    from lingraft.interop.onnx_export import export_onnx as export_onnx
    from lingraft.interop.onnx_import import load_onnx as load_onnx
    from lingraft.report.write import write_report as write_report
    from lingraft.runs import load as load
    from lingraft.steps import evaluate as evaluate
    from lingraft.steps import save as save
    from lingraft.steps import score as score
    from lingraft.steps import select as select
    from lingraft.steps import train as train
    from lingraft.verification.bounds import bounds as bounds
    from lingraft.verification.region import Region as Region
    from lingraft.verification.verify import verify as verify

__version__ = "0.1.0"

_HOME = {
    "ImageSet": "lingraft.data.images",
    "Region": "lingraft.verification.region",
    "bounds": "lingraft.verification.bounds",
    "evaluate": "lingraft.steps",
    "export_onnx": "lingraft.interop.onnx_export",
    "graft": "lingraft.grafting.surgery",
    "load": "lingraft.runs",
    "load_onnx": "lingraft.interop.onnx_import",
    "pruned": "lingraft.grafting.surgery",
    "save": "lingraft.steps",
    "score": "lingraft.steps",
    "select": "lingraft.steps",
    "sites": "lingraft.grafting.sites",
    "train": "lingraft.steps",
    "verify": "lingraft.verification.verify",
    "write_report": "lingraft.report.write",
}

__all__ = ["LingraftError", "__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'lingraft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
