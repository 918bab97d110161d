# The process that holds the discovery port is killed: while calls wait in its port, and while
# nobody does. Streams that are on RDMA do not notice, calls that were under way are made again to
# whoever holds the port next, new connections are cut over. And who has no descriptor left for a
# call, or no connection any more, leaves the port to others. $VM_ARGS times, or once.
# HOSTS: 1 2
# DEVICE: rxe
# TIMEOUT: 600
. "${TOP:?}/tests/vm/lib.sh"

rules="use rdma both *:*
discovery_port 7471
rdma_networks $A4/32 $B4/32
earn_bytes 0
rdma_retry 300ms
discovery 60s
log_level ${LEVEL:-3}"
on "$PEER" policy "$rules"
policy "$rules"

# They leave the test itself something of the processors.
gentle=(nice -n 15 env "${SHIM_ENV[@]}")

# serve NAME, call NAME: a server and its client, endless, both ways
declare -A port=()
serve() {
	new_port "port[$1]"
	on "$PEER" start "srv$1" "${gentle[@]}" pattern listen -a "$P4" -p "$TMP/srv$1.bytes" \
		-s 4000 -n 1000000000000 -d both -w "$2" "${port[$1]}"
	on "$PEER" wait_port "${port[$1]}" || fail "server $1 does not listen"
}
call() {
	start "cli$1" "${gentle[@]}" RDMASHIM_LOG_FILE="$TMP/log.$1" \
		pattern connect -p "$TMP/cli$1.bytes" -s 4000 -n 1000000000000 -d both -w poll \
		"$P4" "${port[$1]}"
}
logs() { local n; for n in "${!port[@]}"; do echo "--- $n"; tail -n 30 "$TMP/log.$n" 2>/dev/null; \
	done; echo "--- servers"; on "$PEER" tail -n 60 "$TMP/shim.log"; }
cut_over() { within 60 grep -qs "receive cut over" "$TMP/log.$1" ||
	{ logs; fail "stream $1 is not cut over $2"; }; }

got_beyond() { local s g; read -r s g <<<"$(figures "$1" "$2")"; ((g >= $3)); }
# What each end had sent arrives, both ways.
flows() {
	local n s g
	for n in "$@"; do
		read -r s g <<<"$(figures a "cli$n")"
		within 60 got_beyond "$PEER" "srv$n" $((s + 1)) ||
			{ logs; fail "client $n's bytes stand still"; }
		read -r s g <<<"$(figures "$PEER" "srv$n")"
		within 60 got_beyond a "cli$n" $((s + 1)) ||
			{ logs; fail "server $n's bytes stand still"; }
	done
}

# The pid of the process at the other end that holds the port.
holder() { on "$PEER" ss -Hltnp "sport = :7471" | sed -n 's/.*pid=\([0-9]*\).*/\1/p'; }
held_by() { [[ $(holder) == "$1" ]]; }
pid() { on "$PEER" pid_of "$1"; }
# As many connections wait in the port.
waiting() { (($(on "$PEER" ss -Hltn "sport = :7471" | awk '{ print $2 }') >= $1)); }

# A holder that serves nobody any more: a call to another process of its host must not wait for it.
holder_is() { [[ $(holder) == "$(pid hoard)" ]]; }
says() { [[ $(on "$PEER" output hoard) == *"$1"* ]]; }
for how in idle full; do
	new_port "port[hoard]"
	on "$PEER" start hoard "${gentle[@]}" prlimit --nofile=64 python3 \
		-S -E tests/vm/rdma-hoarder.py "$P4" "${port[hoard]}"
	on "$PEER" wait_port "${port[hoard]}" || fail "the hoarder does not listen"
	start clihoard "${gentle[@]}" RDMASHIM_LOG_FILE="$TMP/log.hoard" python3 \
		-S -E tests/vm/rdma-hoarder.py client "$P4" "${port[hoard]}"
	within 60 holder_is || { logs; fail "the hoarder does not hold the port but $(holder)"; }
	case $how in
	idle) stop clihoard KILL ;;
	full) on "$PEER" kill -USR1 "$(pid hoard)" ;;
	esac
	within 60 says $how || fail "the hoarder: $(on "$PEER" output hoard)"
	serve $how poll
	call $how
	cut_over $how "while the port's holder is $how"
	flows $how
	stop cli$how KILL
	on "$PEER" finish srv$how 30
	on "$PEER" stop hoard KILL
	ended clihoard || stop clihoard KILL
	say "a holder that is $how: ok"
done

for ((round = 1; round <= ${VM_ARGS:-1}; round++)); do
	say "round $round"
	port=()
	rm -f "$TMP"/log.*
	serve one poll; call one; cut_over one "at first"
	one=$(pid srvone)
	held_by "$one" || fail "not the first server holds the port but $(holder)"
	serve two edge; call two; cut_over two "through another process's port"
	held_by "$one" || fail "the port changed hands"

	# Stopped, it leaves calls waiting in its port; killed, it takes them with it.
	on "$PEER" kill -STOP "$one"
	for n in three four; do serve $n poll; call $n; done
	within 30 waiting 2 || fail "no call waits in the port"
	flows three four
	on "$PEER" kill -KILL "$one"
	for n in three four; do cut_over $n "after the port's holder died"; done
	[[ -n $(holder) ]] || fail "nobody holds the port"
	on a finish clione 30
	(($? == 3)) || fail "the killed server's client: $(output clione)"
	flows two three four

	# Killed while nobody calls: whoever needs the port next has it.
	last=$(holder)
	declare -A owner=([$(pid srvthree)]=three [$(pid srvfour)]=four [$(pid srvtwo)]=two)
	dead=${owner[$last]-}
	[[ -n $dead ]] || fail "a stranger holds the port: $last"
	on "$PEER" kill -KILL "$last"
	finish "cli$dead" 30
	(($? == 3)) || fail "the killed server's client: $(output "cli$dead")"
	[[ -z $(holder) ]] || fail "the port is held although nobody needs it"
	serve five block; call five; cut_over five "by a new holder"
	for n in two three four five; do [[ $n == "$dead" ]] || flows $n; done
	for n in two three four five; do
		[[ $n == "$dead" ]] && continue
		ended "cli$n" && fail "client $n: $(output "cli$n")"
		stop "cli$n" KILL
		on "$PEER" finish "srv$n" 30
		(($? == 3)) || fail "server $n: $(on "$PEER" output "srv$n")"
	done
done
