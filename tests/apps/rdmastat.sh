#!/bin/bash
# rdmastat looking at live processes: processes with their hit rate, connections with their paths
# at both ends, JSON, another user, processes that are killed while it reads.
# TIMEOUT: 90
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
MODES=both
begin_mode both
N=5
R=$TMP/rdmastat
stat_of() { RDMASHIM_STAT_DIR=$STAT "$R" "$@"; }
# yes WHAT EXPRESSION [FILE]: a Python expression over j, the JSON.
yes() {
	python3 -S -E -c 'import json, sys
j = json.load(open(sys.argv[1]))
sys.exit(not eval(sys.argv[2]))' "${3:-$TMP/json}" "$2" ||
	fail "$1: not $2: $(cat "${3:-$TMP/json}")"
}

free_port port
mkfifo "$TMP/fifo"
server "$B/apps/idle" server epoll "$port"
wait_port "$port"
start client "$TMP/client.log" "$B/apps/idle" client poll "$port" $N "$TMP/fifo"
CL=$PID
within 10 grep -q connected "$TMP/client.log" || fail "not connected"
echo "go 60" >"$TMP/fifo"
within 20 grep -q "done 60" "$TMP/client.log" || fail "$(cat "$TMP/client.log")"
took=$(python3 "$TOP/tests/apps/live.py" "$R" "$STAT" 0 $((2 * N)) 5 \
	"c['tx_path'] == c['rx_path'] == 'shm'") || fail "$took"
echo "go 200" >"$TMP/fifo"
within 20 grep -q "done 260" "$TMP/client.log" || fail "$(cat "$TMP/client.log")"
sleep 0.2

# ---- processes: every byte is counted once per end
stat_of --json >"$TMP/json" || fail "--json"
yes "two processes" "sorted(p['pid'] for p in j['processes']) == sorted([$SRV, $CL])"
yes "alive" \
	"all(p['alive'] and p['mode'] == 'on' and p['program'] == 'idle' and p['uid'] == $EUID \
for p in j['processes'])"
yes "connections" \
	"all(p['connections'] == p['connections_fast'] == p['live'] == $N for p in j['processes'])"
yes "all bytes" \
	"all(sum(p['tx_bytes'].values()) == sum(p['rx_bytes'].values()) == 260 * $N * 100 for p \
in j['processes'])"
yes "most of them on shared memory" \
	"all(p['hit_bytes'] > 0.7 and p['hit_connections'] == 1 for p in j['processes'])"
yes "what one sends the other gets" \
	"j['processes'][0]['tx_bytes'] == j['processes'][1]['rx_bytes'] \
and j['processes'][1]['tx_bytes'] == j['processes'][0]['rx_bytes']"
yes "the total" \
	"j['total']['bytes'] == {k: sum(p['bytes'][k] for p in j['processes']) for k in ('tcp', \
'shm', 'rdma')}"
stat_of >"$TMP/text" || fail "text"
for p in $SRV "$CL"; do
	grep -Eq "^ *$p idle +on +$N +$N .*[0-9.]+% +100\.0%$" "$TMP/text" ||
		fail "no line of process $p: $(cat "$TMP/text")"
done
grep -Eq "^ *total +$((2 * N)) +$((2 * N)) " "$TMP/text" || fail "no total: $(cat "$TMP/text")"
say "$(grep total "$TMP/text")"

# ---- connections: both ends of each, on shared memory
stat_of -c >"$TMP/text" || fail "-c"
[[ $(grep -Ec " shm +shm " "$TMP/text") == $((2 * N)) ]] ||
	fail "not $((2 * N)) ends on shm shm: $(cat "$TMP/text")"
stat_of -c --json >"$TMP/json" || fail "-c --json"
yes "both ends" \
	"len(j['connections']) == 2 * $N and len({frozenset((c['local'], c['peer'])) for c \
in j['connections']}) == $N"
yes "roles" \
	"all((c['role'], c['pid']) == (('server', $SRV) if c['local'].endswith(':$port') else \
('client', $CL)) for c in j['connections'])"
yes "descriptors" \
	"len({(c['pid'], c['fd']) for c in j['connections']}) == 2 * $N \
and all(__import__('os').readlink('/proc/%d/fd/%d' % (c['pid'], c['fd'])).startswith('socket:') \
for c in j['connections'])"
yes "cuts" \
	"all(c['cuts'] >= 1 and c['reason'] == '-' and c['tx_bytes']['shm'] + c['tx_bytes']['tcp'] \
== 26000 for c in j['connections'])"
stat_of -c -p "$CL" --json >"$TMP/json" || fail "-p"
yes "one process" "len(j['connections']) == $N and {c['pid'] for c in j['connections']} == {$CL}"
# The kernel's own list of the connections agrees.
ss -Htn "sport = :$port" | awk '{ print $5 }' | sort >"$TMP/ss"
python3 -S -E -c 'import json, sys
print("\n".join(sorted(c["local"] for c in json.load(open(sys.argv[1]))["connections"])))' \
	"$TMP/json" | diff "$TMP/ss" - || fail "the kernel knows other connections"

# ---- calls: the client's, one by one. Every request is one send, most of them on shared memory.
stat_of calls -p "$CL" --json >"$TMP/json" || fail "calls --json"
yes "calls that send" \
	"sum(c['tcp'] + c['fast'] for c in j['calls'] if c['call'] in ('send', 'write')) == 260 * \
$N"
yes "most on the fast path" \
	"all(c['fast'] > 150 * $N for c in j['calls'] if c['call'] in ('send', 'write') \
and c['tcp'] + c['fast'])"
yes "no more sockets than there are" \
	"[c['tcp'] for c in j['calls'] if c['call'] in ('socket', 'connect')] == [$N, $N]"
yes "waits on fast connections are no calls on TCP" \
	"all(c['fast'] > 150 and c['tcp'] < c['fast'] / 2 for c in j['calls'] if c['call'] \
== 'poll')"
stat_of calls -p "$SRV" --json >"$TMP/json" || fail "calls --json"
yes "the server's neither" \
	"[c['fast'] > 150 and c['tcp'] < c['fast'] / 2 for c in j['calls'] if c['call'] \
== 'epoll_wait'] == [True]"

# ---- a process on TCP says why
free_port port2
start none "$TMP/bare.log" "$B/apps/idle" server epoll "$port2"
BARE=$PID
wait_port "$port2"
mkfifo "$TMP/fifo2"
start client "$TMP/client2.log" "$B/apps/idle" client poll "$port2" 2 "$TMP/fifo2"
CL2=$PID
within 10 grep -q connected "$TMP/client2.log" || fail "not connected"
echo "run 5" >"$TMP/fifo2"
took=$(python3 "$TOP/tests/apps/live.py" "$R" "$STAT" "$port2" 2 8 \
	"c['tx_path'] == c['rx_path'] == 'tcp' and c['reason'] == 'peer-no-shim'") ||
	fail "without a library of ours at the other end: $took"
stat_of >"$TMP/text"
grep -q '2 peer-no-shim ' "$TMP/text" && grep -q -- '-> load librdmashim.so' "$TMP/text" ||
	fail "no reason with its remedy: $(cat "$TMP/text")"
stat_of --json -p "$CL2" >"$TMP/json"
yes "nothing hit" "j['total']['hit_bytes'] == 0 and j['total']['hit_connections'] == 0"
# The library does not count there any more; the kernel does, and rdmastat asks it while they live.
as_the_kernel() {
	ss -tniH "dport = :$port2" | grep -o ' bytes_sent:[0-9]*' | cut -d: -f2 | sort >"$TMP/ss"
	stat_of conn --json "pid = $CL2" >"$TMP/json"
	python3 -S -E -c 'import json, sys
before, now = [int(x) for x in open(sys.argv[1])], sorted(c["tx_bytes"]["tcp"]
    for c in json.load(open(sys.argv[2]))["connections"])
sys.exit(not (len(now) == len(before) == 2 and now >= before and min(before) > int(sys.argv[3])))' \
	"$TMP/ss" "$TMP/json" "$1"
}
within 10 as_the_kernel 100 || fail "the kernel: $(cat "$TMP/ss"), and $(cat "$TMP/json")"
more=$(($(tail -n 1 "$TMP/ss") + 1000))
within 20 as_the_kernel "$more" ||
	fail "the kernel, $more later: $(cat "$TMP/ss"), and $(cat "$TMP/json")"

# ... and the library asks the kernel when such a connection is closed, or its process ends.
for how in close exit; do
	free_port port4
	start none "$TMP/sink.log" python3 -S -E -c 'import socket, sys
s, _ = socket.create_server(("127.0.0.1", int(sys.argv[1]))).accept()
while s.recv(65536): pass' "$port4"
	wait_port "$port4"
	rm -f "$TMP/go" "$TMP/stats"
	start client "$TMP/source.log" env RDMASHIM_STATS="$TMP/stats" python3 \
		-S -E -c 'import os, socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(bytes(200000))
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
for i in range(50): s.sendall(bytes(20000))
if sys.argv[3] == "close": s.close()
else: s.detach()' "$port4" "$TMP/go" $how
	SOURCE=$PID
	took=$(python3 "$TOP/tests/apps/live.py" "$R" "$STAT" "$port4" 1 10 \
		"c['reason'] == 'peer-no-shim'") || fail "source: $took"
	: >"$TMP/go"
	finish "$SOURCE" 10 || fail "source: $(cat "$TMP/source.log")"
	grep -q "left TCP: 0.0% of 1200000 bytes" "$TMP/stats" ||
		fail "$how: of 1200000 bytes it says $(cat "$TMP/stats")"
done

# ---- large blocks, which the receiver copies out of the sender's memory: their bytes are counted
# once, too
free_port port5
rm -f "$TMP/got.stats" "$TMP/sent.stats"
start client "$TMP/got.log" env RDMASHIM_STATS="$TMP/got.stats" python3 -S -E -c 'import socket, sys
s, _ = socket.create_server(("127.0.0.1", int(sys.argv[1]))).accept()
block = bytearray(1 << 20)
while s.recv_into(block): pass' "$port5"
GOT=$PID
wait_port "$port5"
start client "$TMP/sent.log" env RDMASHIM_STATS="$TMP/sent.stats" python3 \
	-S -E -c 'import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for i in range(400): s.sendall(bytes(1 << 20))' "$port5"
finish "$PID" 20 && finish "$GOT" 20 || fail "large blocks: $(cat "$TMP/got.log" "$TMP/sent.log")"
for how in got sent; do
	grep -q "left TCP: .* of $((400 << 20)) bytes" "$TMP/$how.stats" ||
		fail "$how $((400 << 20)) bytes, it says $(cat "$TMP/$how.stats")"
done
say "large blocks: $(grep -o 'left TCP.*' "$TMP/sent.stats")"

# ---- another user sees his own only (by the default directories; here root's is in /dev/shm)
if ((EUID == 0)) && command -v runuser >/dev/null; then
	mkdir -p -m 700 "$TMP/theirs" && chown daemon "$TMP/theirs"
	runuser -u daemon -- env RDMASHIM_STAT_DIR="$STAT" "$R" --json >"$TMP/json" 2>"$TMP/err"
	yes "nobody of root's in root's directory" "j['processes'] == []"
	SHIM_ENV=()
	shim_env
	free_port port3
	start none "$TMP/default.log" env -u RDMASHIM_STAT_DIR LD_PRELOAD="$PRELOAD" \
		RDMASHIM_CONF="$CONF" "$B/apps/idle" server epoll "$port3"
	ROOTS=$PID
	start none "$TMP/theirs.log" runuser -u daemon -- env -u RDMASHIM_STAT_DIR \
		LD_PRELOAD="$PRELOAD" RDMASHIM_CONF="$CONF" \
		python3 -c \
		'import socket, os, time; s = socket.socket()
print(os.getpid(), flush=True); time.sleep(60)'
	within 10 test -s "$TMP/theirs.log" || fail "the other user's process does not start"
	THEIRS=$(cat "$TMP/theirs.log")
	wait_port "$port3"
	env -u RDMASHIM_STAT_DIR "$R" --json >"$TMP/json"
	yes "root sees both" "{$ROOTS, $THEIRS} <= {p['pid'] for p in j['processes']}"
	runuser -u daemon -- env -u RDMASHIM_STAT_DIR "$R" --json >"$TMP/json"
	yes "the other user sees his own" \
		"$THEIRS in {p['pid'] for p in j['processes']} and $ROOTS not in {p['pid'] for p \
in j['processes']}"
	yes "and nobody else's" "{p['uid'] for p in j['processes']} == {$(id -u daemon)}"
	runuser -u daemon -- env -u RDMASHIM_STAT_DIR "$R" -c -p "$ROOTS" >"$TMP/text" 2>&1 &&
		fail "root's process by its number: $(cat "$TMP/text")"
	kill "$THEIRS"
	kill "$ROOTS"
	env -u RDMASHIM_STAT_DIR "$R" >/dev/null	# forget both
fi

# ---- processes that come and are killed while others read: always a whole document, never a crash
(
	while [[ ! -e $TMP/enough ]]; do
		stat_of --json --all >"$TMP/loop.json" 2>"$TMP/loop.err" ||
			{ echo "status $?" >"$TMP/loop.bad"; exit; }
		python3 -S -E -c 'import json, sys; json.load(sys.stdin)' <"$TMP/loop.json" ||
			{ cp "$TMP/loop.json" "$TMP/loop.bad"; exit; }
		stat_of -c >"$TMP/loop.text" 2>>"$TMP/loop.err" ||
			{ echo "status $? of -c" >"$TMP/loop.bad"; exit; }
		echo >>"$TMP/loops"
	done
) 3>&- &
LOOP=$!
PIDS+=("$LOOP")
kills=0
for i in 1 2 3 4 5 6 7 8 9 10; do
	free_port port4
	rm -f "$TMP/fifo4"
	mkfifo "$TMP/fifo4"
	start shim "$TMP/s4.log" "$B/apps/idle" server epoll "$port4"
	s4=$PID
	wait_port "$port4"
	start shim "$TMP/c4.log" "$B/apps/idle" client poll "$port4" 20 "$TMP/fifo4"
	c4=$PID
	within 10 grep -q connected "$TMP/c4.log" || fail "not connected"
	echo "run 1" >"$TMP/fifo4"
	sleep 0.$((i % 4 + 1))
	kill -KILL "$c4" "$s4"
	wait "$c4" "$s4" 2>/dev/null
	kills=$((kills + 2))
done
touch "$TMP/enough"
wait "$LOOP"
[[ ! -e $TMP/loop.bad ]] || fail "while processes were killed: $(head -c 2000 "$TMP/loop.bad")"
[[ -s $TMP/loop.err ]] && fail "it complained: $(sort "$TMP/loop.err" | uniq -c | head)"
say "$kills processes killed during $(wc -l <"$TMP/loops") readings"
(($(wc -l <"$TMP/loops") >= 5)) || fail "too few readings"
stat_of --json >"$TMP/json"
yes "the dead are forgotten" "{p['pid'] for p in j['processes']} == {$SRV, $CL, $CL2}"
[[ $(find "$STAT" -mindepth 1 ! -name 'places.*' | wc -l) == 3 ]] ||
	fail "files of the dead remain: $(ls "$STAT")"

echo quit >"$TMP/fifo"
finish "$CL" 10 || fail "client: $(cat "$TMP/client.log")"
stop "$SRV"
kill "$CL2" "$BARE"
exit 0
