#!/bin/bash
# Connections between network namespaces, while they talk by the rings: `mode off`, a rule that says
# tcp, or the directory's key taken away sends both directions back to TCP within a second, and
# `mode on` takes them off again; `rdmastat why` shows how they were proved. The network between the
# two goes down: the rings go on; the end is the end, and no byte is lost or wrong.
#	nspolicy.sh [SCENE...]
# TIMEOUT: 200
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/../hostile/netns.bash"
. "$(dirname "$0")/../hostile/across.bash"
[[ -z ${SAN-} ]] || skip "Python under a sanitizer is slow"
networks_for "$(dirname "$0")/nstalk.py"

# talk NAME LINE...: both ends, cut both ways
talk() {
	begin_mode "$1"
	shift
	across 'earn_share off' "$@"
	rm -f "$TMP"/stop*
	serves shim python3 "$TMP/nstalk.py" server "$port"
	start shim "$TMP/client.log" nsenter -t "$N_A" -n python3 "$TMP/nstalk.py" client \
		10.96.0.1 23081 "$TMP/stop"
	client=$PID
	within 15 times 'receive cut over' 2 || fail "not joined"
}
# times TEXT N: is it in the log so often?
times() { [[ -e $TMP/shim.$MODE ]] && (($(grep -c "$1" "$TMP/shim.$MODE") >= $2)); }
so_far() { cat "$TMP/stop.so-far"; }
goes_on() { local n; n=$(so_far); within 10 more_than "$n" || fail "it stands still"; }
more_than() { (($(so_far) > $1 + 1000)); }
# ended WORD: both, and how the server took it
ended() {
	touch "$TMP/stop"
	finish "$client" 20 || fail "client: $(cat "$TMP/client.log")"
	finish "$server" 20 || fail "server: $(cat "$TMP/server.log")"
	[[ $(cat "$TMP/server.log") == "read $(sed 's/sent //' "$TMP/client.log") $1" ]] ||
		fail "$(cat "$TMP/client.log"); server: $(cat "$TMP/server.log")"
	collect
	say "$FAST bytes on a fast path, on TCP because: $REASONS"
}

# rewritten LINE...: the policy, in one step: who reads half of it logs less
rewritten() {
	(CONF=$TMP/next policy "$@") && mv "$TMP/next" "$CONF"
}
# home NAME LINE...: what the policy says then, instead
home() {
	local name=$1 t
	shift
	talk "$name"
	t=$(date +%s%N)
	rewritten 'log_level 4' 'earn_share off' "$@"
	within 3 times 'receive back on TCP' 2 || fail "still on the rings"
	t=$((($(date +%s%N) - t) / 1000000))
	say "back on TCP after $t ms"
	((t < 1000)) || fail "not within a second"
	goes_on
}
scene_off() {
	home off "cross_ns_dir $TMP/across.d" "key_file $TMP/key" 'mode off'
	across 'earn_share off'
	within 10 times 'receive cut over' 4 || fail "it does not come back"
	goes_on
	ended end
}
scene_rule() {
	home rule "cross_ns_dir $TMP/across.d" "key_file $TMP/key" 'use tcp both *:*'
	ended end
}
scene_key() {
	home key "cross_ns_dir $TMP/across.d"
	ended end
}
scene_directory() {
	home directory
	ended end
}
scene_why() {
	talk why
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" why "*:23081" >"$TMP/why.log" 2>&1
	grep -q 'one connection across network namespaces' "$TMP/why.log" ||
		fail "$(cat "$TMP/why.log")"
	ended end
}
down() { in_net "$N_R" ip link set vB down; }
up() { in_net "$N_R" ip link set vB up; }
scene_down() {
	talk down
	down
	goes_on
	up
	goes_on
	ended end
}
# They end while the network is down: what says so goes by the ring.
scene_ends_down() {
	talk ends-down
	down
	goes_on
	ended end
	up
}
# Back on TCP while it is down: nothing moves, and all goes on when it is up again.
scene_home_down() {
	talk home-down
	down
	goes_on
	rewritten 'log_level 4' 'earn_share off' "cross_ns_dir $TMP/across.d" \
		"key_file $TMP/key" 'mode off'
	within 10 times 'send back on TCP' 2 || fail "still on the rings"
	sleep 0.5
	up
	goes_on
	ended end
}
# One is killed while it is down: its FIN is on its way until it is up again, as by TCP.
scene_killed_down() {
	talk killed-down
	down
	goes_on
	kill -KILL "$client"
	within 5 times 'ended: peer-gone' 1 || fail "its end is not seen"
	sleep 1
	gone "$server" && fail "the server knows what TCP could not: $(cat "$TMP/server.log")"
	up
	finish "$server" 20 || fail "the server has not heard of it"
	say "the server: $(cat "$TMP/server.log")"
}

(($#)) || set -- off rule key directory why down ends_down home_down killed_down
for scene; do
	"scene_$scene"
done
exit 0
