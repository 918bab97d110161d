#!/bin/bash
# sockperf's ping-pong by recvfrom and epoll (with one end preloaded or none: epoll only); no
# message may be lost, doubled or out of order. At most 100,000 a second: sockperf gives up beyond
# the 600,000 that it has room for.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
command -v sockperf >/dev/null || skip "no sockperf"

job() {
	local port how ways=epoll
	[[ $MODE != both ]] || ways="recvfrom epoll"
	for how in $ways; do
		free_port port
		echo "T:127.0.0.1:$port" >"$TMP/feed"
		if [[ $how == recvfrom ]]; then
			server sockperf server --tcp -i 127.0.0.1 -p "$port"
		else
			server sockperf server -f "$TMP/feed" -F "$how"
		fi
		wait_port "$port"
		client timeout 30 sockperf ping-pong --tcp -i 127.0.0.1 -p "$port" -t 1 -m 64 \
			--mps 100000 --data-integrity >"$TMP/client.log" 2>&1 ||
			fail "$how: $(cat "$TMP/client.log")"
		grep -q '# dropped messages = 0; # duplicated messages = 0; '\
'# out-of-order messages = 0' "$TMP/client.log" ||
			fail "$how: $(cat "$TMP/client.log")"
		kill -INT "$SRV"
		wait "$SRV" 2>/dev/null
	done
	echo "none lost" >>"$OUT"
}
for_modes job 100000
