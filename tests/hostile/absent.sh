#!/bin/bash
# A file whose bytes never come (another user's, in FUSE): the thread that sends it, by sendfile()
# or out of a mapping, or receives into one, waits, as without the library. All others of the server
# go on: other connections, fresh ones, forks.
# TIMEOUT: 170
. "$(dirname "$0")/../apps/lib.sh"
((EUID == 0)) || skip "only root can mount for another user"
[[ -n $SHIM ]] || skip "no library"
[[ -x $B/hostile/hangs ]] || fail "no $B/hostile/hangs"
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
mkdir "$TMP/mp"
mkfifo "$TMP/hold" "$TMP/ask" "$TMP/go"
mknod -m 666 "$TMP/fuse" c 10 229 || skip "no device can be made"
cp "$B/hostile/hangs" "$TOP/tests/hostile/absent.py" "$TMP"
chmod 755 "$TMP"
shim_env

# first the daemon ends: who waits for it can't be killed
bad() {
	exec 5>&-
	fail "$@"
}
goes() { timeout 10 tee "$TMP/$1" <<<"" >/dev/null; }

# one MODE WORDS: what the server is asked for
one() {
	policy 'earn_bytes 0' 'earn_rounds 0'
	free_port port
	exec 5<>"$TMP/hold"
	: >"$TMP/hangs.log"
	"$TMP/hangs" file "$TMP/mp" "$TMP/fuse" env "${SHIM_ENV[@]}" python3 -S -E \
		"$TMP/absent.py" server "$port" "$TMP/mp/file" <"$TMP/hold" \
		>"$TMP/hangs.log" 2>&1 5>&- &
	server=$!
	PIDS+=("$server")
	within 10 listening "$port" || bad "no server: $(cat "$TMP/hangs.log")"
	start shim "$TMP/client.log" timeout -s KILL 40 python3 -S -E "$TMP/absent.py" client \
		"$port" "$2" "$TMP/ask" "$TMP/go"
	client=$PID
	within 20 grep -q fast "$TMP/client.log" || bad "$*: $(tail -n 3 "$TMP/client.log")"
	# both directions are on TCP, and the stream is on its link still
	if [[ $1 == tcp ]]; then
		policy 'mode off'
		python3 "$TOP/tests/apps/live.py" "$B/rdmastat" "$STAT" "$port" 4 10 \
			"c['tx_path'] == c['rx_path'] == 'tcp'" >"$TMP/live.log" ||
			bad "mode off: $(cat "$TMP/live.log")"
	fi
	goes ask || bad "$*: the client does not go on"
	within 30 grep -q '^read' "$TMP/hangs.log" ||
		bad "$*: nobody reads the file: $(cat "$TMP/hangs.log" "$TMP/client.log")"
	goes go || bad "$*: the client does not go on"
	wait "$client" || bad "$*: others wait for the file: $(tail -n 3 "$TMP/client.log")"
	exec 5>&-	# the daemon ends, and who waits has an error
	kill -KILL "$server" && wait "$server" 2>/dev/null
	return 0
}

if (($#)); then
	one "$1" "$2"
	exit
fi
for words in F 'send 64' 'send 60000' 'recv 64' 'recv 60000'; do
	one fast "$words"
	one tcp "$words"
done
collect
((FAST > 1000000)) || fail "hardly a byte on a fast path"
