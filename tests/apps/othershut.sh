#!/bin/bash
# A connection is shut down by another process, which has the socket by fork, exec, posix_spawn or
# SCM_RIGHTS: both ends see it as without the library.
# TIMEOUT: 150
. "$(dirname "$0")/lib.sh"
policy 'earn_bytes 0' 'earn_rounds 0'
job() {
	local port way how
	free_port port
	server "$B/apps/othershut" server "$port"
	wait_port "$port"
	for way in fork exec spawn pass; do
		for how in 0 1 2; do
			client timeout 60 "$B/apps/othershut" client "$port" $way $how >>"$OUT" ||
				fail "$way $how: status $?"
		done
	done
	stop "$SRV"
}
for_modes job 100000
