#!/bin/bash
# The sources' folders call each other only as docs/architecture.md permits ("Arrows").
# TIMEOUT: 60
cd "$(dirname "$0")/../.." || exit 1
[[ -n ${SHIM-} ]] || { echo "no library (SHIM=)"; exit 77; }
exec python3 tests/scripts/arrows.py "$B"
