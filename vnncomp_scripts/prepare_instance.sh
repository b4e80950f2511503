#!/bin/bash
# VNN-COMP: prepare_instance.sh v1 CATEGORY NETWORK.onnx PROPERTY.vnnlib
# Reads both files once, which brings them and the tool into the memory of the system. Does no analysis.
# LINGRAFT chooses the program; otherwise the one that install_tool.sh installed, or the one on PATH.
set -uo pipefail

if [ "${1:-}" != "v1" ] || [ $# -lt 4 ]; then
    echo "usage: prepare_instance.sh v1 CATEGORY NETWORK.onnx PROPERTY.vnnlib" >&2
    exit 1
fi
network="$3" property="$4"

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
installed="$root/build/vnncomp/bin/lingraft"
lingraft="${LINGRAFT:-$([ -x "$installed" ] && echo "$installed" || command -v lingraft)}"
if [ -z "$lingraft" ]; then
    echo "lingraft is not installed; run install_tool.sh v1" >&2
    exit 1
fi
for file in "$network" "$property"; do
    if [ ! -r "$file" ]; then
        echo "cannot read $file" >&2
        exit 1
    fi
    cat -- "$file" > /dev/null
done
"$lingraft" verify --help > /dev/null
