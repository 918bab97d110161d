#!/bin/sh
# rdmastat policy, and the sample files in conf/; see tests/unit/test_policy_tools.py.
# TIMEOUT: 60
cd "$(dirname "$0")/../.." || exit 1
exec python3 tests/unit/test_policy_tools.py "${B:-build}/rdmastat"
