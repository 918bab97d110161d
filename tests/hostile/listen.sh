#!/bin/bash
# A user's many descriptors of a socket that listens do not hide root's own sockets from root's
# `rdmastat listen`.
# TIMEOUT: 60
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
((EUID == 0)) || skip "only root can be the victim and the user"
begin_mode both
shim_env
cat >"$TMP/listen.py" <<-'END'
	import os, signal, socket, sys
	held = socket.create_server(("127.0.0.1", 0))
	for _ in range(int(sys.argv[1])):
	    os.dup(held.fileno())
	print(held.getsockname()[1], flush=True)
	signal.pause()
END
chmod 755 "$TMP" && chmod 644 "$TMP/listen.py"
# listens HOW... -- COUNT: its port in $port, by counters where root's rdmastat looks by itself
listens() {
	local how=()
	while [[ $1 != -- ]]; do how+=("$1"); shift; done
	: >"$TMP/port"
	env -u RDMASHIM_STAT_DIR "${how[@]}" env LD_PRELOAD="$SHIM" /usr/bin/python3 -S -E \
		"$TMP/listen.py" "$2" >"$TMP/port" 2>"$TMP/err" &
	PIDS+=($!)
	within 20 test -s "$TMP/port" || fail "nobody listens: $(<"$TMP/err")"
	port=$(<"$TMP/port")
}
ulimit -n 4096 || skip "too few descriptors"
listens setpriv --reuid 31337 --regid 31337 --clear-groups -- 3000
listens -- 0
env -u RDMASHIM_STAT_DIR timeout 20 "$TMP/rdmastat" listen >"$TMP/out" 2>&1
grep -q "127.0.0.1:$port " "$TMP/out" || fail "port $port is hidden: $(tail -n 3 "$TMP/out")"
exit 0
