#!/bin/bash
# Thousands of processes that end: their counter files do not fill /dev/shm, and what they counted
# is there to the last byte, of killed ones, too. Files of processes that live, and of another pid
# namespace, are left alone.
#	tests/apps/manyshort.sh [PROCESSES]
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
N=${1:-${N:-5000}}
[[ -z ${SAN-} ]] || N=300
MODE=both
begin_mode both
policy
rm -rf "$STAT"
STAT=$(mktemp -d /dev/shm/rdmashim-manyshort.XXXXXX) && chmod 700 "$STAT" || skip "no /dev/shm"
trap 'status=$?; rm -rf "$STAT"; (exit $status); cleanup' EXIT

# One of another pid namespace that lives: its number there names nobody here.
free_port port
other=
if unshare -pf --mount-proc true 2>/dev/null; then
	for ((other = $(cut -d' ' \
		-f5 /proc/loadavg) + 15000; other > 32000 || other < 300; other -= 31000)); do
		:
	done
	while [[ -e /proc/$other ]]; do other=$((other + 1)); done
	shim_env
	start none "$TMP/other.log" unshare -pf --mount-proc --kill-child bash \
		-c 'echo $(($1 - 1)) >/proc/sys/kernel/ns_last_pid && shift && env "$@" & wait' \
		x "$other" "${SHIM_ENV[@]}" "$B/apps/idle" server epoll "$port"
	wait_port "$port"
	[[ -e $STAT/$other ]] || { say "no process of that number in a pid namespace of its own:" \
		"$(ls "$STAT")"; other=; }
fi
start shim "$TMP/lives.log" "$B/apps/idle" server epoll $((port + 1))
lives=$PID
within 10 test -e "$STAT/$lives" || fail "no counter file: $(ls "$STAT")"

client "$B/apps/manyshort" "$N" >"$TMP/many.log" 2>&1 || fail "$(cat "$TMP/many.log")"
kb=$(du -sk "$STAT" | cut -f1)
files=$(find "$STAT" -type f | wc -l)
say "$N processes left $files files, $kb kB"
[[ -e $STAT/$lives ]] || fail "the file of a process that lives is gone"
[[ -z $other || -e $STAT/$other ]] || fail "the file of a process in another pid namespace is gone"
((kb <= 16384)) || fail "$kb kB of counter files"

# Each process has one connection, and its server the other end of each.
RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json --all | python3 -S -E -c 'import json, sys
n = int(sys.argv[1])
p = [p for p in json.load(sys.stdin)["processes"] if p["program"] == "manyshort"]
tx = sum(sum(q["tx_bytes"].values()) for q in p)
rx = sum(sum(q["rx_bytes"].values()) for q in p)
got = sum(q.get("processes", 1) for q in p), sum(q["connections"] for q in p), tx, rx
want = n + 1, 2 * n, 200 * n, 200 * n
print("processes, connections, sent, received: %s, want %s" % (got, want))
sys.exit(got != want)' "$N" >"$TMP/sums" || fail "$(cat "$TMP/sums")"
say "$(cat "$TMP/sums")"
stop "$lives"
exit 0
