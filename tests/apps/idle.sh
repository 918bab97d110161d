#!/bin/bash
# Idle upgraded connections cost nothing but memory: 1,000 of them between two processes, all on
# shared memory both ways, then 5 seconds in which no thread of either process may be woken or use
# CPU time. Also with poll, and with a blocked thread per connection. (Until `ring_idle` is over
# the background thread looks at their rings; then it has nothing to look at.) And afterwards they
# still work. Who waits for room in a ring that stays full sleeps, too.
#	idle.sh [full]		only that
# TIMEOUT: 150
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
IDLE=${IDLE:-5}
MODES=both
ulimit -n "$(ulimit -Hn)" 2>/dev/null
(($(ulimit -n) >= 4096)) || skip "only $(ulimit -n) file descriptors"

# Wake-ups and CPU ticks of all threads of the processes: "SWITCHES TICKS".
usage_of() {
	python3 - "$@" <<-'PY'
	import glob, sys
	switches = ticks = 0
	for pid in sys.argv[1:]:
	    for t in glob.glob("/proc/%s/task/*" % pid):
	        switches += sum(int(l.split()[1]) for l in open(t + "/status")
	        	if l.startswith("voluntary_ctxt"))
	        f = open(t + "/stat").read().rsplit(")", 1)[1].split()
	        ticks += int(f[11]) + int(f[12])
	print(switches, ticks)
	PY
}
pss() { awk '/^Pss:/ { print $2 }' "/proc/$1/smaps_rollup"; }
# The memory of all rings was given back.
rested() {
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json | python3 -c '
import json, sys
p = json.load(sys.stdin)["processes"]
sys.exit(len(p) != 2 or any(x["ring_bytes"] for x in p))'
}
told() { [[ $(grep -c "$1" "$TMP/client.log") -ge $2 ]]; }

# more ROUNDS: so many more, all answered right.
more() {
	rounds=$((rounds + $1))
	echo "go $1" >"$TMP/fifo"
	within 30 told "done $rounds" 1 || fail "$how: $rounds rounds: $(cat "$TMP/client.log")"
}

# one HOW CONNECTIONS SECONDS
one() {
	local how=$1 n=$2 secs=$3 port c before after took s0 c0 s1 c1 rounds=40 end quiet
	free_port port
	rm -f "$TMP/fifo"
	mkfifo "$TMP/fifo"
	server "$B/apps/idle" server "$how" "$port"
	wait_port "$port"
	start client "$TMP/client.log" "$B/apps/idle" client "$how" "$port" "$n" "$TMP/fifo"
	c=$PID
	within 20 told connected 1 || fail "$how: not connected: $(cat "$TMP/client.log")"
	s0=$(pss "$SRV") c0=$(pss "$c")
	echo "go 40" >"$TMP/fifo"
	within 30 told "done 40" 1 || fail "$how: the first rounds: $(cat "$TMP/client.log")"
	# Found only after the last answer, on a busy machine, they are not cut before the next
	# one: all wait as they did before.
	end=$((SECONDS + 20))
	until took=$(python3 "$TOP/tests/apps/live.py" "$TMP/rdmastat" "$STAT" 0 $((2 * n)) 2 \
		"c['tx_path'] == c['rx_path'] == 'shm'"); do
		((SECONDS < end)) || fail "$how: $took"
		more 2
	done
	# The last reply may have come before the ends were quite ready to cut; and what was
	# learnt is used once.
	more 2
	within 20 rested || fail "$how: rings keep their memory"
	sleep 2
	# What wakes them again and again does so in one of two windows, too, that follow each
	# other; once may be what other work of the machine has put off.
	quiet=1
	for _ in 1 2 3 4; do
		before=$(usage_of "$SRV" "$c")
		sleep "$secs"
		after=$(usage_of "$SRV" "$c")
		if [[ $before != "$after" ]]; then
			quiet=2
		elif ((!--quiet)); then
			break
		fi
	done
	s1=$(pss "$SRV") c1=$(pss "$c")
	say "$how: $n connections idle for $secs s: $((${after% *} - ${before% *})) wake-ups," \
		"$((${after#* } - ${before#* })) ticks;" \
		"memory per connection: server $(((s1 - s0) * 10 / n)), client $(((c1 - \
		c0) * 10 / n)) tenths of KiB (Pss)"
	((quiet <= 0)) ||
		fail "$how: not idle: switches and ticks went from $before to $after"
	# Idle, and still there: still cut, still right.
	took=$(python3 "$TOP/tests/apps/live.py" "$TMP/rdmastat" "$STAT" 0 $((2 * n)) 1 \
		"c['tx_path'] == c['rx_path'] == 'shm'") ||
		fail "$how: after the rest: $took"
	more 3
	echo quit >"$TMP/fifo"
	finish "$c" 20 || fail "$how: client: $(cat "$TMP/client.log")"
	stop "$SRV"
}

# More threads than there are bells: they rest, too, in a while.
crowd() {
	local n=$1 port c before after rounds=40
	how=threads
	free_port port
	rm -f "$TMP/fifo"
	mkfifo "$TMP/fifo"
	server "$B/apps/idle" server threads "$port"
	wait_port "$port"
	start client "$TMP/client.log" "$B/apps/idle" client threads "$port" "$n" "$TMP/fifo"
	c=$PID
	within 20 told connected 1 || fail "crowd: not connected: $(cat "$TMP/client.log")"
	echo "go 40" >"$TMP/fifo"
	within 60 told "done 40" 1 || fail "crowd: the first rounds: $(cat "$TMP/client.log")"
	sleep 3
	before=$(usage_of "$SRV" "$c")
	sleep 3
	after=$(usage_of "$SRV" "$c")
	collect
	say "crowd: $n threads idle for 3 s: $((${after% *} - ${before% *})) wake-ups," \
		"$((${after#* } - ${before#* })) ticks; on TCP because: $REASONS"
	((${after#* } - ${before#* } < 30)) || fail "crowd: they do not rest"
	[[ $REASONS == *no-bell* ]] || fail "crowd: the reason is not said"
	more 3
	echo quit >"$TMP/fifo"
	finish "$c" 20 || fail "crowd: client: $(cat "$TMP/client.log")"
	stop "$SRV"
}

full() {
	local out
	policy 'earn_bytes 0' 'earn_rounds 0' 'overflow 10s'
	shim_env
	out=$(env "${SHIM_ENV[@]}" SNIP_WAIT_CUT=1 \
		"$B/snippets/epoll_threads" epoll_full_sleeps 2>&1)
	say "$out"
	[[ $out == *"epoll_full_sleeps: asleep"* ]] ||
		fail "who waits for room in a full ring does not sleep"
}

begin_mode both
policy 'ring_idle 1s'
if [[ ${1-} != full ]]; then
	one epoll 1000 "$IDLE"
	rm -f "$STAT"/*
	one poll 200 3
	rm -f "$STAT"/*
	one threads 60 3
	rm -f "$STAT"/*
	crowd 150
fi
full
