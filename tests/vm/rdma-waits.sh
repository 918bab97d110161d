# Who sleeps in recv, poll or epoll_wait for what comes by RDMA is woken by the device itself:
# while messages go to and fro, the library's background thread sleeps at both ends.
# HOSTS: 1
# DEVICE: rxe siw
# TIMEOUT: 300
. "${TOP:?}/tests/vm/lib.sh"
ROUNDS=${VM_ARGS:-400}

policy "use rdma both *:*
discovery_port 7471
rdma_networks $A4/32 $B4/32
earn_bytes 0
discovery 60s
spin 0
log_level ${LEVEL:-3}"

# Times that the background thread of that process went to sleep.
naps() {
	local t
	for t in /proc/"$(pid_of "$1")"/task/*; do
		[[ $(<"$t/comm") == rdmashim ]] &&
			awk '$1 == "voluntary_ctxt_switches:" { print $2 }' "$t/status"
	done
}
rounds() { output cli | grep -c ^done; }
go() {
	local before
	before=$(rounds)
	echo "go $1" >&$commands
	within 60 eval 'ended cli || (($(rounds) > before))' && ! ended cli ||
		fail "$how: client: $(output cli)"
}
# shellcheck disable=SC2002  # a file that is not there yet has none
cut_over() { (($(cat "$TMP/shim.log" 2>/dev/null | grep -c "cut over") >= 4)); }

mkfifo "$TMP/commands"
for how in threads poll epoll; do
	new_port port
	rm -f "$TMP/shim.log"
	start srv shim env IDLE_ADDR="$P4" idle server $how "$port"
	wait_port "$port" || fail "server does not listen"
	start cli shim env IDLE_ADDR="$P4" idle client $how "$port" 1 "$TMP/commands"
	exec {commands}>"$TMP/commands"
	# A half is cut over when it moves.
	for ((i = 0; i < 60; i++)); do
		go 1
		cut_over && break
		nap 0.5
	done
	cut_over || { cat "$TMP/shim.log"; fail "$how: not cut over"; }
	go 50
	s=$(naps srv) c=$(naps cli)
	[[ -n $s && -n $c ]] || fail "$how: no background thread? the test tests nothing"
	go "$ROUNDS"
	s=$(($(naps srv) - s)) c=$(($(naps cli) - c))
	say "$how: in $ROUNDS round trips the background threads woke $s times (server) and $c" \
		"times (client)"
	((s < ROUNDS / 4 && c < ROUNDS / 4)) || fail "$how: woken by the background thread"
	echo quit >&$commands
	finish cli 30 || fail "$how: client: $(output cli)"
	exec {commands}>&-
	stop srv KILL
done
