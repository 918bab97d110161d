#!/bin/bash
# bench.sh [N] [SOCKBENCH OPTIONS]: what the library gives and costs, as ratios to plain TCP in
# the same rounds: N rounds (default 5), all ways in turn, medians. A ratio above 1 is better than
# TCP.
#	both		both ends preloaded
#	client, server	one end only: what the library costs where it cannot help; should be 1.00.
#			See ends.py
#	no spin		both, policy `spin 0`
#	one CPU		both on one CPU: nothing to spare for spinning; against TCP on one CPU
#	limit		what the machine could do at most: two processes that spin, memcpy(),
#			process_vm_readv(2); see limits.c
#	AF_UNIX		no shim, an AF_UNIX socket in place of TCP; `both / AF_UNIX` is how far the
#			library is ahead of it
# Then 10,000 connections of which 1 % are busy, what the library adds to /bin/true, and idle
# connections (tests/apps/idle.sh). The ratios are compared with the floors in tests/bench/floors:
# exit status 1 and a line for each that is missed. Figures go to $B/bench/ratios.txt, a chart to
# $B/bench/ratios.svg.
. "$(dirname "$0")/../apps/lib.sh"
HERE=$(dirname "${BASH_SOURCE[0]}")
N=${1:-5}
[[ $N =~ ^[1-9][0-9]*$ ]] || { echo "usage: bench.sh [N] [SOCKBENCH OPTIONS]" >&2; exit 2; }
shift || true
OPTS=("$@")
[[ ${#OPTS[@]} -gt 0 ]] || OPTS=(-t 0.4)
[[ -n $SHIM ]] || skip "no library (SHIM=)"
RESULT=$B/bench/ratios
MANY=${MANY:-10000}
: >"$TMP/figures"

# one WAY MODE PREFIX OPTION...: one run of sockbench under the name WAY
one() {
	local way=$1 mode=$2 port host=127.0.0.1 on=()
	[[ -z $3 ]] || read -ra on <<<"$3"
	shift 3
	begin_mode "$mode"
	free_port port
	[[ $way != unix ]] || port=$TMP/socket
	rm -f "$TMP/socket"
	server "${on[@]}" "$B/bench/sockbench" -s "$port"
	if [[ $way == unix ]]; then
		within 10 test -S "$port" || fail "no socket"
	else
		wait_port "$port"
	fi
	client "${on[@]}" "$B/bench/sockbench" -u -c $host "$port" "${OPTS[@]}" \
		"$@" >"$TMP/client.log" ||
		fail "client: $(cat "$TMP/client.log")"
	finish "$SRV" 10 || fail "server: $(cat "$TMP/server.log")"
	sed "s/^/$way /" "$TMP/client.log" >>"$TMP/figures"
}

# many MODE
many() {
	local port
	begin_mode "$1"
	free_port port
	server "$B/bench/many" server "$port"
	wait_port "$port"
	client "$B/bench/many" client "$port" "$MANY" 1 >"$TMP/client.log" ||
		fail "many: $(cat "$TMP/client.log")"
	finish "$SRV" 30 || fail "server: $(cat "$TMP/server.log")"
	sed "s/^/$1 /" "$TMP/client.log" >>"$TMP/figures"
}

for ((round = 1; round <= N; round++)); do
	echo "round $round of $N" >&2
	for m in bare both; do
		one $m $m ""
	done
	"$B/bench/limits" 0.3 | sed 's/^/limit /' >>"$TMP/figures"
	for f in rtt_64 stream_64; do
		one unix bare "" -f $f
		policy 'spin 0'
		one nospin both "" -f $f
		policy
		one onecpu both "taskset -c 0" -f $f
	done
done
begin_mode ends
shim_env
python3 "$HERE/ends.py" "$B/bench/sockbench" $((4 * N)) "${SHIM_ENV[@]}" >>"$TMP/figures" ||
	fail "one end only: see above"
ulimit -n "$(ulimit -Hn)" 2>/dev/null
if (($(ulimit -n) > MANY + MANY / 4)); then
	echo "$MANY connections" >&2
	for ((round = 1; round <= 3; round++)); do
		many bare
		many both
	done
fi

mkdir -p "${RESULT%/*}"
python3 "$HERE/table.py" "$TMP/figures" "$HERE/floors" "$RESULT.svg" | tee "$RESULT.txt"
rc=${PIPESTATUS[0]}
for t in scripts/check-startup apps/idle; do
	IDLE=5 FLOORS=1 B=$B SHIM=$SHIM "$TOP/tests/$t.sh" 2>&1 | tee -a "$RESULT.txt"
	((PIPESTATUS[0] == 0)) || rc=1
done
exit "$rc"
