#!/bin/bash
# The rules that `make check-mutants` takes out of the sources are there.
# TIMEOUT: 30
cd "$(dirname "$0")/../.." || exit 1
exec python3 tests/mutants/run.py --texts
