#!/bin/bash
# What calls say after a reset: by SO_LINGER, by a close() with input unread, or by the end of a
# process that had not read all; as without the library, also where the kernel has seen a FIN alone.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
policy 'earn_bytes 0' 'earn_rounds 0'
job() {
	local port how told
	for how in l u k; do
		for told in e r s n; do
			free_port port
			server "$B/apps/afterreset" server "$port"
			wait_port "$port"
			printf '%s%s ' $how $told >>"$OUT"
			client timeout 60 "$B/apps/afterreset" client "$port" $how $told >>"$OUT" ||
				fail "$how $told: status $?"
			within 10 gone "$SRV" || fail "the server is still there"
			wait "$SRV" 2>/dev/null
		done
	done
}
MODES=${MODES/ client server/}
for_modes job 100000
