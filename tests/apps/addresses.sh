#!/bin/bash
# Every kind of local address: IPv6, v4-mapped, another loopback address, the machine's own
# address on a network card.
. "$(dirname "$0")/lib.sh"

# one NAME LISTEN CONNECT
one() {
	local port
	free_port port
	server "$B/apps/pattern" listen -a "$2" -w poll -n 67108864 "$port"
	wait_port "$port"
	client "$B/apps/pattern" connect -w block -n 67108864 "$3" "$port" >"$TMP/client.log" \
		2>&1 || fail "$1, client: $(cat "$TMP/client.log")"
	finish "$SRV" 15 || fail "$1, server: $(cat "$TMP/server.log")"
	{ echo "$1"; cat "$TMP/client.log" "$TMP/server.log"; } >>"$OUT"
}

# One family at a time, with counters of its own: each must reach the fast path.
job() {
	# shellcheck disable=SC2086
	one $ends
}

own=$(ip -o -4 addr show scope global up | awk '{ sub("/.*", "", $4); print $4; exit }')
own6=$(ip -o -6 addr show scope global up | awk '{ sub("/.*", "", $4); print $4; exit }')
cases=("loopback4 127.0.0.1 127.0.0.1" "other-loopback 127.0.0.9 127.0.0.9" "any 0.0.0.0 127.0.0.1")
if [[ -n $(ip -6 addr show dev lo 2>/dev/null) ]]; then
	cases+=("ipv6 ::1 ::1" "mapped-server :: 127.0.0.1" "mapped-both :: ::ffff:127.0.0.1" \
		"mapped-client 127.0.0.1 ::ffff:127.0.0.1")
fi
[[ -n $own ]] && cases+=("own-address $own $own" "any-own 0.0.0.0 $own")
[[ -n $own6 ]] && cases+=("own-ipv6 $own6 $own6")
for ends in "${cases[@]}"; do
	rm -rf "$TMP"/out.* "$TMP"/stat.*
	echo "--- $ends"
	for_modes job 1000000 || exit 1
done
