"""lingraft: make trained networks certifiably robust by grafting linearity into them, and prove it.

The names below are the public surface. They are imported on first use, so that `import lingraft` and
`lingraft --help` stay instant while torch is only loaded when something needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from lingraft.grafting.sites import sites as sites
    from lingraft.grafting.surgery import graft as graft
    from lingraft.grafting.surgery import pruned as pruned
    from lingraft.interop.onnx_export import export_onnx as export_onnx
    from lingraft.interop.onnx_import import load_onnx as load_onnx
    from lingraft.runs import load as load
    from lingraft.verification.bounds import bounds as bounds
    from lingraft.verification.region import Region as Region
    from lingraft.verification.verify import verify as verify

__version__ = "0.1.0"

_HOME = {
    "Region": "lingraft.verification.region",
    "bounds": "lingraft.verification.bounds",
    "export_onnx": "lingraft.interop.onnx_export",
    "graft": "lingraft.grafting.surgery",
    "load": "lingraft.runs",
    "load_onnx": "lingraft.interop.onnx_import",
    "pruned": "lingraft.grafting.surgery",
    "sites": "lingraft.grafting.sites",
    "verify": "lingraft.verification.verify",
}

__all__ = ["LingraftError", "__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'lingraft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
