#!/bin/sh
# What rdmastat's views make of made-up counter files and sockets; see tests/unit/test_views.py.
# TIMEOUT: 120
cd "$(dirname "$0")/../.." || exit 1
exec python3 tests/unit/test_views.py "${B:-build}/rdmastat"
