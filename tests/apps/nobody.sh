#!/bin/bash
# A server that runs as nobody, as nginx's workers do without a user line: both ends say so.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
((EUID == 0)) || skip "not root: no other user can be had"
MODES=both
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0' 'peer_users any' 'discovery 2s'
shim_env
mkdir -m 777 "$TMP/theirs"

says() {	# DIRECTORY REASON: some connection there
	RDMASHIM_STAT_DIR=$1 "$TMP/rdmastat" conn -j 2>/dev/null |
		python3 -c \
		'import json, sys; sys.exit(sys.argv[1] not in [c["reason"]
			for c in json.load(sys.stdin)["connections"]])' "$2"
}

# USER OPTION...: the server's; then what both ends are to say
run() {
	local user=$1 want=$2
	rm -rf "$TMP/theirs/d" "$STAT"
	mkdir -m 700 "$STAT"
	free_port port
	start none "$TMP/server.log" setpriv --reuid "$user" --regid "$user" \
		--clear-groups env "${SHIM_ENV[@]}" RDMASHIM_STAT_DIR="$TMP/theirs/d" \
		/usr/bin/python3 "$TMP/echo.py" server "$port"
	SRV=$PID
	wait_port "$port"
	start shim "$TMP/client.log" /usr/bin/python3 "$TMP/live.py" "$port"
	within 10 says "$STAT" "$want" ||
		fail "$user: the client does not say $want:" \
		"$(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" conn)"
	within 10 says "$TMP/theirs/d" "$want" ||
		fail "$user: the server does not say $want:" \
		"$(RDMASHIM_STAT_DIR=$TMP/theirs/d "$TMP/rdmastat" conn)"
	kill -KILL "$PID" "$SRV"
	wait "$PID" "$SRV" 2>/dev/null
	say "$user: $want at both ends"
}
cat >"$TMP/echo.py" <<'END'
import socket, sys
s, _ = socket.create_server(("127.0.0.1", int(sys.argv[2]))).accept()
while b := s.recv(65536):
    s.sendall(b)
END
cat >"$TMP/live.py" <<'END'
import socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while True:
    s.sendall(b"x" * 1000)
    assert s.recv(1000, socket.MSG_WAITALL) == b"x" * 1000
    time.sleep(0.001)
END
chmod 644 "$TMP"/*.py "$CONF"
run 65534 nobody
run 31337 -
