#!/bin/bash
# What calls say after a reset: by SO_LINGER, by a close() with input unread, or by the end of a
# process that had not read all; as without the library, also where the kernel has seen a FIN
# alone. Many at once, so that some end in the middle of a cut-over.
# TIMEOUT: 180
. "$(dirname "$0")/lib.sh"
policy 'earn_bytes 0' 'earn_rounds 0'
AT_ONCE=12
job() {
	local port how told n i
	for how in l u k; do
		for told in e r s n; do
			local srvs=() ports=() clients=()
			for ((i = 0; i < AT_ONCE; i++)); do
				free_port port
				start server "$TMP/server.$i" "$B/apps/afterreset" server "$port"
				srvs+=("$PID") ports+=("$port")
				wait_port "$port"
			done
			for ((i = 0; i < AT_ONCE; i++)); do
				set -- client "${ports[i]}" $how $told
				start client "$TMP/client.$i" timeout 60 "$B/apps/afterreset" "$@"
				clients+=("$PID")
			done
			for ((i = 0; i < AT_ONCE; i++)); do
				wait "${clients[i]}"
				n=$?
				((n == 0)) || fail "$how $told: status $n: $(<"$TMP/client.$i")"
				within 10 gone "${srvs[i]}" ||
					fail "the server is still there"
				wait "${srvs[i]}" 2>/dev/null
				echo "$how$told $(<"$TMP/client.$i")" >>"$OUT"
			done
		done
	done
}
MODES=${MODES/ client server/}
for_modes job 100000
