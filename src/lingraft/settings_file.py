"""settings.yaml of a run: the options that made it, as its command takes them with --config."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from lingraft.errors import LingraftError
from lingraft.files import replacing

#: Bytes of such a file at most.
LARGEST = 1 << 20


def write_settings(path: Path, command: str, options: Mapping[str, Any]) -> None:
    """Write the options of `lingraft COMMAND`; None is left out, and what a file cannot hold is named in a comment."""
    given = {name: _plain(value) for name, value in options.items() if value is not None}
    text = f"# lingraft {command} --config {path.name} -o FOLDER does the same again; options beside it win\n"
    missing = [name for name, value in given.items() if value is None]
    if missing:
        text += f"# given from Python, and not in this file: {', '.join(missing)}\n"
    text += yaml.safe_dump({name: value for name, value in given.items() if value is not None}, sort_keys=False)
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def read_settings(path: Path, known: Collection[str]) -> dict[str, Any]:
    """Options by their names, which must be `known`; lists become text as on the command line, 1,2,3."""
    try:
        if path.stat().st_size > LARGEST:
            raise LingraftError(f"{path} is too large for a file of settings. Is it the right one?")
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LingraftError(f"cannot read {path}: {error.strerror or error}. Check the path of --config.") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise LingraftError(
            f"{path} is not YAML ({' '.join(str(error).split())}). Write lines like lr: 0.05."
        ) from error
    if not isinstance(content, dict) or not content:
        raise LingraftError(f"{path} holds no settings. Write lines like lr: 0.05.")
    settings = {str(name).replace("-", "_"): value for name, value in content.items()}
    unknown = sorted(settings.keys() - set(known))
    if unknown:
        raise LingraftError(
            f"{path} has settings that there are not: {', '.join(unknown)}. There are {', '.join(sorted(known))}."
        )
    wrong = [name for name, value in settings.items() if value is not None and _plain(value) is None]
    if wrong:
        raise LingraftError(f"{path}: {wrong[0]} must be a number, text, true or false, or a list of such.")
    return {name: _plain(value) for name, value in settings.items() if value is not None}


def _plain(value: Any) -> Any:
    """As a file holds it; None where it cannot."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) if all(isinstance(each, int | float | str) for each in value) else None
    return value if isinstance(value, bool | int | float | str) else None
