#!/bin/bash
# VNN-COMP: prepare_instance.sh v1 CATEGORY NETWORK.onnx PROPERTY.vnnlib
# Reads the files once, which brings them and the tool into the memory of the system. Does no analysis.
# Several networks are a list, "[('f', 'a.onnx'), ('g', 'b.onnx')]".
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
files=("$network")
if [[ "$network" == \[* ]]; then
    # the second of each pair
    mapfile -t files < <(grep -oE ",[[:space:]]*('[^']*'|\"[^\"]*\")[[:space:]]*\)" <<< "$network" | sed -E "s/^,[[:space:]]*.//; s/.[[:space:]]*\)$//")
fi
for file in "${files[@]}" "$property"; do
    if [ ! -r "$file" ]; then
        echo "cannot read $file" >&2
        exit 1
    fi
    cat -- "$file" > /dev/null
done
"$lingraft" verify --help > /dev/null
