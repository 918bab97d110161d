#!/bin/bash
# A user has as many inotify instances, and watches, as his processes have opened: without one
# left, a changed policy file is noticed nevertheless.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the library needs the sanitizer's runtime before it"
MODES=both
begin_mode both
# In a user namespace of its own nobody else's instances count.
unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_inotify_instances' 2>/dev/null ||
	skip "no user namespace"
cat >"$TMP/echo.py" <<'END'
import select, socket
l = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(l.getsockname())
a = l.accept()[0]
print("up", flush=True)
while True:
    c.sendall(b"x" * 100)
    a.recv(100)
    select.select([], [], [], 0.001)
END
up() { grep -q up "$TMP/server.log"; }
reasons() {
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" conn -o reason -p "$1" | sed 1d | sort | tr '\n' ' '
}
are() { [[ $(reasons "$1") == "$2" ]]; }
quickly=('earn_bytes 0' 'earn_rounds 0' 'watch_after 1ms')

for limit in instances watches; do
	policy 'mode off' "${quickly[@]}"
	rm -f "$TMP/server.log"
	shim_env
	env "${SHIM_ENV[@]}" unshare -Ur sh \
		-c 'echo 0 >/proc/sys/user/max_inotify_'$limit'; exec python3 "$1"' sh \
		"$TMP/echo.py" >"$TMP/server.log" 2>&1 3>&- &
	pid=$!
	PIDS+=("$pid")
	within 20 up || fail "it does not start"
	within 20 are $pid 'mode-off mode-off ' || fail "without $limit: reasons: $(reasons $pid)"
	sleep 0.5	# now it would watch
	[[ -z $(find "/proc/$pid/fd" -lname anon_inode:inotify) ]] ||
		fail "without $limit it has an inotify instance"
	policy 'mode on' "${quickly[@]}"
	within 20 are $pid '- - ' || fail "without $limit, mode on is not noticed: $(reasons $pid)"
	stop $pid
done
exit 0
