#!/bin/bash
# A file whose bytes never come (another user's, in FUSE): the thread that sends it waits, as
# without the library. All others of the server go on: other connections, fresh ones, forks.
# TIMEOUT: 100
. "$(dirname "$0")/../apps/lib.sh"
((EUID == 0)) || skip "only root can mount for another user"
unshare -m true 2>/dev/null || skip "no mount namespaces, as below a root that is no mount"
[[ -n $SHIM ]] || skip "no library"
[[ -x $B/hostile/hangs ]] || fail "no $B/hostile/hangs"
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
mkdir "$TMP/mp"
mkfifo "$TMP/hold" "$TMP/go"
mknod -m 666 "$TMP/fuse" c 10 229 || skip "no device can be made"
cp "$B/hostile/hangs" "$TOP/tests/hostile/absent.py" "$TMP"
chmod 755 "$TMP"
shim_env

# one WORD: what the server is asked for
one() {
	free_port port
	exec 5<>"$TMP/hold"
	: >"$TMP/hangs.log"
	"$TMP/hangs" file "$TMP/mp" "$TMP/fuse" env "${SHIM_ENV[@]}" python3 -S -E \
		"$TMP/absent.py" server "$port" "$TMP/mp/file" <"$TMP/hold" \
		>"$TMP/hangs.log" 2>&1 5>&- &
	server=$!
	PIDS+=("$server")
	within 10 listening "$port" || fail "no server: $(cat "$TMP/hangs.log")"
	start shim "$TMP/client.log" timeout -s KILL 40 python3 -S -E "$TMP/absent.py" client \
		"$port" "$1" "$TMP/go"
	client=$PID
	within 30 grep -q '^read' "$TMP/hangs.log" ||
		fail "$1: nobody reads the file: $(cat "$TMP/hangs.log" "$TMP/client.log")"
	timeout 10 tee "$TMP/go" <<<"" >/dev/null
	wait "$client" || fail "$1: others wait for the file: $(tail -n 3 "$TMP/client.log")"
	exec 5>&-	# the daemon ends, and who waits has an error
	kill -KILL "$server" && wait "$server" 2>/dev/null
	return 0
}

one F
collect
((FAST > 100000)) || fail "hardly a byte on a fast path"
