#!/bin/bash
# While the other end is looked for, a connection is said to be `searching`, not to have earned too
# little; once it is found, nothing.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
MODES=both
begin_mode both
policy 'earn_bytes 32K' 'discovery 20s' 'log_level 3'

reason() {
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" conn -j "pid = $CLI" |
		python3 -c \
		'import json, sys; print(*(c["reason"]
			for c in json.load(sys.stdin)["connections"]))'
}
is() { [[ $(reason) == "$1" ]]; }

mkfifo "$TMP/go"
free_port port
server /usr/bin/python3 -c '
import socket, sys
s, _ = socket.create_server(("127.0.0.1", int(sys.argv[1]))).accept()
s.send(b"x")
n = 0
while b := s.recv(65536):
    n += len(b)
    s.send(b"y")
print(n)' "$port"
wait_port "$port"
start client "$TMP/client.log" /usr/bin/python3 -c '
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
assert s.recv(1) == b"x"
open(sys.argv[2]).read()
s.sendall(bytes(128 << 10))
open(sys.argv[2]).read()
for i in range(1000):
    s.sendall(bytes(1000))
    assert s.recv(1000)
print("done", flush=True)
s.recv(1)' "$port" "$TMP/go"
CLI=$PID
within 10 is not-earned || fail "at first: $(reason)"
kill -STOP "$SRV"
echo >"$TMP/go"
within 10 is searching || fail "while the other end stands still: $(reason)"
why() { RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" why "$@"; }
grep -q 'is looked for' <<<"$(why -j "127.0.0.1:$port" 2>/dev/null)" ||
	grep -q 'is looked for' <<<"$(why "$CLI")" ||
	fail "why does not say it"
kill -CONT "$SRV"
within 15 is - || fail "found: $(reason)"
echo >"$TMP/go"
within 15 grep -q "done" "$TMP/client.log" || fail "it hangs"
# the first line of each process in the log: which library, which policy, and what is not by default
version=$("$TMP/rdmastat" --version)
line="librdmashim ${version#rdmastat } in python3, policy $CONF, mode on, 0 rules, earn_bytes 32K, \
discovery 20s, log_level 3"
for p in "$CLI" "$SRV"; do
	[[ $(grep -F "rdmashim[$p]: " "$TMP/shim.both" |
		head -n 1) == *" path rdmashim[$p]: $line" ]] ||
		fail "no line '$line' of $p: $(cat "$TMP/shim.both")"
done
say "not-earned, searching, found"
