#!/bin/bash
# What rdmastat says is under way on a connection is what the program knows to be: on the fast path
# by both ends' counters, on TCP by the kernel; each end says it of the other. And a ring that was
# too small, and a reader that was too slow, are counted.
# TIMEOUT: 100
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
MODES=both
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
rdmastat() { RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" "$@"; }
UNDERWAY=$TOP/tests/apps/underway.py
FAST="c['tx_path'] == c['rx_path'] == 'shm'"
live() { python3 "$TOP/tests/apps/live.py" "$TMP/rdmastat" "$STAT" 0 2 10 "$FAST"; }

# tell END ORDER: and waits until it is done
tell() {
	local seen
	seen=$(grep -c "done $2" "$TMP/$1.log")
	echo "$2" >"$TMP/$1.fifo"
	within 20 eval "((\$(grep -c 'done $2' '$TMP/$1.log') > $seen))" ||
		fail "$1: no '$2': $(<"$TMP/$1.log")"
}
talk() {
	local seen
	seen=$(grep -c "done talk" "$TMP/c.log")
	echo talk >"$TMP/s.fifo"
	echo talk >"$TMP/c.fifo"
	within 20 eval "((\$(grep -c 'done talk' '$TMP/c.log') > $seen))" ||
		fail "no dialogue: $(<"$TMP/c.log")"
}
# is WHAT EXPRESSION: of c and s, the two ends
is() {
	rdmastat conn --json >"$TMP/json" || fail "conn --json"
	python3 -S -E -c 'import json, sys
e = {c["role"]: c for c in json.load(open(sys.argv[1]))["connections"]}
c, s = e["client"], e["server"]
sys.exit(not eval(sys.argv[2]))' "$TMP/json" "$2" || fail "$1: not $2: $(<"$TMP/json")"
}
ends() {	# MODE of the server
	free_port port
	rm -f "$TMP"/[cs].fifo
	mkfifo "$TMP/c.fifo" "$TMP/s.fifo"
	start "$1" "$TMP/s.log" /usr/bin/python3 "$UNDERWAY" server "$port" "$TMP/s.fifo"
	S=$PID
	wait_port "$port"
	start client "$TMP/c.log" /usr/bin/python3 "$UNDERWAY" client "$port" "$TMP/c.fifo"
	C=$PID
	talk
}

ends server
talk
live ||
	fail "not on the fast path"
is "all is read" "c['send_queue'] == s['receive_queue'] == 0 == s['send_queue']"
tell c "send 5000"
is "nobody reads" "c['send_queue'] == s['receive_queue'] == 5000 and s['send_queue'] == 0"
is "what the ring is for" "c['ring_bytes'] >= 65536 and c['tx_path'] == 'shm' and c['rtt_ns'] > 0"
rdmastat conn -p "$C" -o fd,sendq,ring,fill,full,slow,rtt >"$TMP/text" || fail "conn -o"
grep -Eq ' 4\.9K +[0-9.]+[KM] +[0-9.]+% +0 +0 +[0-9.]+[mu]s$' "$TMP/text" || fail "$(<"$TMP/text")"
fd=$(awk 'NR == 2 { print $1 }' "$TMP/text")
rdmastat why "$C:$fd" >"$TMP/text" || fail "why"
grep -Eq '^under way +4\.9K sent that .* has not read \(.*%.* of a ring of' "$TMP/text" ||
	fail "$(<"$TMP/text")"
tell s "read 4000"
is "a part is read" "c['send_queue'] == s['receive_queue'] == 1000"
tell s "read 1000"
is "all is read" "c['send_queue'] == s['receive_queue'] == 0"
rdmastat calls -p "$C" --json >"$TMP/json"
rdmastat --json -p "$C" >"$TMP/process.json"
python3 -S -E -c 'import json, sys
calls = json.load(open(sys.argv[1]))["calls"]
calls = sum(c["tcp"] + c["fast"] for c in calls if c["call"] == "recv")
p = json.load(open(sys.argv[2]))["processes"][0]
waits = p["counters"]["spins_won"] + p["counters"]["sleeps"]
print("%d calls, %d waits, %s of them polled" % (calls, waits, p["waits_polled"]))
share = round(p["counters"]["spins_won"] / waits, 6) if waits else None
assert waits <= calls and p["waits_polled"] == share
' "$TMP/json" "$TMP/process.json" ||
	fail "a call waits once, and either polls or sleeps: $(<"$TMP/process.json")"

# ---- a ring that is too small, and nobody who reads: the rest goes by TCP
echo "send 3000000" >"$TMP/c.fifo"
over() { grep -q '"overflows":[1-9]' <<<"$(rdmastat conn --json)"; }
within 20 over || fail "nothing overflows: $(rdmastat conn --json)"
tell s "read 3000000"
within 20 grep -q 'done send 3000000' "$TMP/c.log" || fail "not sent"
is "it was too small" "c['overflows'] >= 1 and c['ring_full'] >= 1 and s['overflows'] == 0"
rdmastat --json -p "$C" >"$TMP/json"
python3 -S -E -c 'import json, sys
p = json.load(open(sys.argv[1]))["processes"][0]
assert p["counters"]["ring_full"] >= 1 and p["counters"]["overflows"] >= 1, p
assert [r["reason"] for r in p["reasons"]].count("overflow") == 1, p' "$TMP/json" ||
	fail "the process: $(<"$TMP/json")"
rdmastat >"$TMP/text"
grep -Eq 'overflow .*reader too slow [0-9]+ time' "$TMP/text" || fail "$(<"$TMP/text")"

# ---- a ring that is used again: another connection of the two programs has the slot of one before.
# Either end may have asked for it, and before the other one has given the old one back.
reused() {
	rdmastat --json -p "$C" >"$TMP/json"
	rdmastat --json -p "$S" >>"$TMP/json"
	grep -q '"rings_reused":[1-9]' "$TMP/json"
}
for _ in {1..20}; do
	echo again >"$TMP/s.fifo"
	tell c again
	talk
	talk
	live >/dev/null ||
		fail "the next one is not on the fast path"
	reused && break
done
reused || fail "not used again: $(<"$TMP/json")"
kill "$S" "$C"
wait "$S" "$C" 2>/dev/null

# ---- on TCP the kernel knows
ends none
tell c "send 7000"
rdmastat conn -p "$C" --json >"$TMP/json"
queued() { rdmastat conn -p "$C" --json | python3 -S -E -c 'import json, sys
c = json.load(sys.stdin)["connections"][0]
# the other end has no counters: what its kernel has acknowledged is no longer on the way
good = c["tx_path"] == "tcp" and c["send_queue"] == c["receive_queue"] == 0 and c["rtt_ns"] > 0
sys.exit(not good)'; }
within 10 queued || fail "on TCP: $(<"$TMP/json")"
