#!/bin/bash
# with-shim.sh COMMAND...: runs a command with $SHIM preloaded, counters and policy of its own.
# Without SHIM: skips.
set -uo pipefail
if [[ -z ${SHIM-} || ! -e ${SHIM-} ]]; then
	echo "no library (SHIM=${SHIM-})"
	exit 77
fi
. "$(dirname "$0")/../apps/lib.sh"
policy
run_with shim "$@"
