#!/bin/bash
# VNN-COMP: run_instance.sh v1 CATEGORY NETWORK.onnx PROPERTY.vnnlib RESULTS_FILE TIMEOUT
# Writes sat with the counterexample, unsat, unknown, timeout or error to RESULTS_FILE. Exit code 0 unless it is error.
# Several networks are a list, "[('f', 'a.onnx'), ('g', 'b.onnx')]". The counterexample of a property in VNN-LIB 2.0 is
# written as its standard says: a line NAME TYPE [SHAPE] for each declared tensor, followed by its values.
# LINGRAFT chooses the program; otherwise the one that install_tool.sh installed, or the one on PATH.
set -uo pipefail

if [ "${1:-}" != "v1" ] || [ $# -lt 6 ]; then
    echo "usage: run_instance.sh v1 CATEGORY NETWORK.onnx PROPERTY.vnnlib RESULTS_FILE TIMEOUT" >&2
    exit 1
fi
network="$3" property="$4" results="$5" seconds="$6"

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
installed="$root/build/vnncomp/bin/lingraft"
lingraft="${LINGRAFT:-$([ -x "$installed" ] && echo "$installed" || command -v lingraft)}"
if [ -z "$lingraft" ]; then
    echo "lingraft is not installed; run install_tool.sh v1" >&2
    echo error > "$results"
    exit 1
fi

answer="$results.part"
trap 'rm -f "$answer"' EXIT
# the tool ends in time by itself; should it ever not, it is ended, which is a timeout as well
timeout --kill-after=5 "$(awk -v s="$seconds" 'BEGIN { printf "%.0f", s + 5 }')" \
    "$lingraft" verify --onnx "$network" --vnnlib "$property" --timeout "$seconds" > "$answer"
code=$?
case $code in
    0 | 10 | 11 | 12) mv -- "$answer" "$results" ;;
    124 | 137) echo timeout > "$results" ;;
    *)
        echo error > "$results"
        exit 1
        ;;
esac
