#!/bin/bash
# VNN-COMP: install_tool.sh v1
# Installs lingraft with its pinned versions into build/vnncomp of this repository. PYTHON chooses the interpreter
# (3.11 or newer).
set -euo pipefail

if [ "${1:-}" != "v1" ]; then
    echo "expected the version string v1, got '${1:-}'" >&2
    exit 1
fi

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="${PYTHON:-$(command -v python3.11 || command -v python3)}"
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "lingraft needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2
    exit 1
fi
"$python" -m venv "$root/build/vnncomp"
"$root/build/vnncomp/bin/python" -m pip install --quiet --constraint "$root/constraints.txt" "$root"
"$root/build/vnncomp/bin/lingraft" --version
