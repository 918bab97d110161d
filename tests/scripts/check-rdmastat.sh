#!/bin/sh
# rdmastat from outside; see tests/unit/test_rdmastat.py.
# TIMEOUT: 60
cd "$(dirname "$0")/../.." || exit 1
exec python3 tests/unit/test_rdmastat.py "${B:-build}/rdmastat"
