"""Networks that code of the user's own makes: `net.py:make_net`, or `package.module:Net`.

Whoever calls `from_code` runs that code, so nothing does unless the user has named it.
"""

import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from torch import fx, nn

from lingraft.errors import LingraftError

#: A file or a module, and a name in it.
_PLACE = re.compile(r"(?P<where>.+\.py|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")

#: Packages whose classes are no networks of somebody: what they make cannot be made again without arguments.
_LIBRARIES = ("torch", "lingraft")


def is_code(text: str) -> bool:
    """Whether a text names code that makes a network, rather than a file or folder that is there."""
    return text.endswith(".py") or (_PLACE.fullmatch(text) is not None and not Path(text).exists())


def from_code(place: str) -> nn.Module:
    """The network of `file.py:name`: what the function or class of that name gives without arguments, or itself."""
    found = _PLACE.fullmatch(place)
    if found is None:
        raise LingraftError(f"{place!r} names no network. Write the file and what makes it, like net.py:make_net.")
    folder = Path(found["where"]).resolve().parent if found["where"].endswith(".py") else Path.cwd()
    with _importing_from(folder):
        made = _run(place, lambda: _named(_module(found["where"]), found["name"]))
        if not isinstance(made, nn.Module):
            if not callable(made):
                raise LingraftError(f"{place} is a {type(made).__name__}, neither a network nor what makes one.")
            made = _run(place, made)
    if not isinstance(made, nn.Module):
        raise LingraftError(f"{place} gives a {type(made).__name__}, not an nn.Module.")
    return made


def place_of(model: nn.Module) -> str | None:
    """What `from_code` would make such a network of, as `file.py:Class` or `module:Class`; None if nothing can."""
    kind = type(model)
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    made_here = kind.__module__.partition(".")[0] in _LIBRARIES or isinstance(model, fx.GraphModule)
    if made_here or "<locals>" in kind.__qualname__ or file is None or not file.endswith(".py"):
        return None
    if getattr(module, "__package__", None):
        return f"{kind.__module__}:{kind.__qualname__}"
    path = Path(file).resolve()
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown.as_posix()}:{kind.__qualname__}"


def file_of(place: str) -> Path | None:
    """The file that the code is in; of a module only if it is imported already, since asking would import it."""
    where = place.rpartition(":")[0]
    if where.endswith(".py"):
        return Path(where)
    file = getattr(sys.modules.get(where), "__file__", None)
    return None if file is None else Path(file)


def _module(where: str) -> ModuleType:
    if not where.endswith(".py"):
        return importlib.import_module(where)
    path = Path(where)
    if not path.is_file():
        raise LingraftError(f"there is no file {path}. Name the file of your network, like net.py:make_net.")
    # named after its content: the same code is run once, and in nobody's way
    name = f"_lingraft_{path.stem}_{hashlib.sha256(str(path.resolve()).encode() + path.read_bytes()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _named(module: ModuleType, name: str) -> object:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            there = [
                known
                for known, value in vars(module).items()
                if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == module.__name__
            ]
            which = f" Its networks: {', '.join(there)}." if there else " Define it there."
            raise LingraftError(f"{module.__file__} has no {name}.{which}")
        found = getattr(found, part)
    return found


def _run(place: str, call: object) -> object:
    """What the user's code gives; whatever it raises says where."""
    assert callable(call)
    try:
        return call()
    except LingraftError:
        raise
    except (Exception, SystemExit) as error:
        trace, line = error.__traceback__, ""
        while trace is not None:
            line = f", line {trace.tb_lineno} of {trace.tb_frame.f_code.co_filename}"
            trace = trace.tb_next
        raise LingraftError(
            f"{place} could not be called without arguments: {type(error).__name__}: {error}{line}. Name a function or"
            " class that gives the network."
        ) from error


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Modules beside the code can be imported, as where Python runs a file."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
