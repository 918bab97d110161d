#!/bin/sh
# rdmastat's commands on made-up counter files; see tests/unit/test_tools.py.
# TIMEOUT: 180
cd "$(dirname "$0")/../.." || exit 1
exec python3 tests/unit/test_tools.py "${B:-build}/rdmastat"
