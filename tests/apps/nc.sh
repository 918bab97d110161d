#!/bin/bash
# netcat: a file there, a file back.
. "$(dirname "$0")/lib.sh"
nc=$(command -v nc.openbsd) || skip "no nc.openbsd"
make_file "$TMP/file" 67108864

# one LISTENER-SENDS CLIENT-SENDS
one() {
	local port
	free_port port
	if preloaded server; then
		shim_env
		env "${SHIM_ENV[@]}" "$nc" -l -N 127.0.0.1 "$port" <"$1" >"$TMP/server.out" \
			2>"$TMP/server.log" &
	else
		"$nc" -l -N 127.0.0.1 "$port" <"$1" >"$TMP/server.out" 2>"$TMP/server.log" &
	fi
	SRV=$!
	PIDS+=("$SRV")
	wait_port "$port"
	# Netcat ends the whole conversation when one direction has ended: without input it must
	# not end that (-N).
	client timeout 60 "$nc" "$([[ $2 == /dev/null ]] && echo -d || echo -N)" 127.0.0.1 \
		"$port" <"$2" >"$TMP/client.out" 2>"$TMP/client.log" ||
		fail "client, status $?"
	finish "$SRV" 20 || fail "listener, status $?"
	cmp "$1" "$TMP/client.out" || fail "the client got something else"
	cmp "$2" "$TMP/server.out" || fail "the listener got something else"
	echo "$(sum "$TMP/client.out") $(sum "$TMP/server.out")" >>"$OUT"
}

job() {
	one /dev/null "$TMP/file"
	one "$TMP/file" /dev/null
}
# How soon is the machine's business; that it happens is ours.
for_modes job 1000000
