#!/bin/bash
# iperf3: one stream, four, and the other way round. It looks at no byte: what counts is that all
# three end, with plausible counts.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
command -v iperf3 >/dev/null || skip "no iperf3"

job() {
	local port how
	free_port port
	server iperf3 -s -p "$port"
	wait_port "$port"
	for how in "" "-P 4" "-R"; do
		# shellcheck disable=SC2086
		client timeout 30 iperf3 -c 127.0.0.1 -p "$port" -n 200M \
			-J $how >"$TMP/client.log" 2>&1 ||
			fail "iperf3 $how: $(cat "$TMP/client.log")"
		python3 - "$how" "$TMP/client.log" >>"$OUT" \
			<<-'END' || fail "iperf3 $how: $(cat "$TMP/client.log")"
		import json, sys
		e = json.load(open(sys.argv[2]))["end"]
		got, sent = e["sum_received"]["bytes"], e["sum_sent"]["bytes"]
		print(sys.argv[1], sent >= got > sent / 2, sent >= 200 << 20)
		END
	done
	kill "$SRV"
	wait "$SRV" 2>/dev/null
}
for_modes job 10000000
