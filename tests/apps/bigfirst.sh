#!/bin/bash
# Both ends send megabytes before either reads: TCP's buffers take it, so nothing faster may hang
# on it.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
too_much=

job() {
	local port n rc
	for n in 1000000 4000000; do
		[[ $too_much == *" $n "* ]] && continue
		free_port port
		server "$B/apps/bigfirst" listen -n $n "$port"
		wait_port "$port"
		client timeout 20 "$B/apps/bigfirst" connect -n $n 127.0.0.1 \
			"$port" >"$TMP/client.log" 2>&1
		rc=$?
		if [[ $MODE == bare && $rc == 124 ]]; then
			say "the kernel's buffers don't take $n bytes each way here: no test"
			too_much+=" $n "
			stop "$SRV"
			continue
		fi
		((rc == 0)) || fail "client, $n bytes, status $rc: $(cat "$TMP/client.log")"
		finish "$SRV" 10 || fail "server, $n bytes: $(cat "$TMP/server.log")"
		cat "$TMP/client.log" "$TMP/server.log" >>"$OUT"
	done
}
for_modes job 100000
