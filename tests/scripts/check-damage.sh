#!/bin/sh
# rdmastat on damaged counter files, and with wrong arguments; see tests/unit/test_damage.py.
# TIMEOUT: 180
cd "$(dirname "$0")/../.." || exit 1
exec python3 tests/unit/test_damage.py "${B:-build}/rdmastat"
