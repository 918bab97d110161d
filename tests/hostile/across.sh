#!/bin/bash
# Who is never joined across network namespaces: ends of two connections, with a relay or a proxy
# that keeps both addresses between them, or SYNPROXY; a forged socket that has all that is seen of
# an end; ends with different keys; twins, whose addresses and ports are the same; and ends of one
# whose name somebody else has taken, or passes on. The same ends with nobody between them are
# joined.
#	across.sh [SCENE...]
# TIMEOUT: 300
. "$(dirname "$0")/../apps/lib.sh"
. "$(dirname "$0")/netns.bash"
. "$(dirname "$0")/across.bash"
[[ -z ${SAN-} ]] || skip "Python under a sanitizer is slow, and what is tested are the answers"
networks_for "$(dirname "$0")/across.py"

# ends NAME WORD: the server earns at once, so that its name is there before the client's knock
ends() {
	begin_mode "$1"
	across 'earn_share off' 'earn_bytes 100' 'discovery 4s'
	cp "$CONF" "$TMP/server.conf"
	sed -i 's/^earn_bytes.*/earn_bytes 30K\nearn_rounds 1000000/' "$CONF"
	CONF=$TMP/server.conf start shim "$TMP/server.log" nsenter -t "${3:-$N_B}" -n \
		python3 "$TMP/across.py" server 0.0.0.0 23001 "$2"
	port=23001
	SERVER=$PID
	within 15 listens "${3:-$N_B}" || fail "no server"
}
# ask NAMESPACE ADDRESS PORT WORD [GO]: in the background
ask() {
	local from=$1
	shift
	start shim "$TMP/client.log" nsenter -t "$from" -n python3 "$TMP/across.py" client "$@"
}
# told fast|tcp|either
told() {
	finish "$PID" 40 || fail "client: $(cat "$TMP/client.log")"
	[[ $(tail -n 1 "$TMP/client.log") == right ]] || fail "$(cat "$TMP/client.log")"
	kill -KILL "$SERVER"
	wait "$SERVER" 2>/dev/null
	collect
	say "$FAST bytes on a fast path, on TCP because: $REASONS"
	case $1 in
	fast) ((FAST > 10000)) || fail "not joined" ;;
	tcp) ((FAST == 0)) || fail "joined" ;;
	esac
}

scene_nobody() {
	ends nobody word
	ask "$N_A" 10.96.0.1 23081 word
	told fast
}
scene_relay() {
	ends relay word
	start none "$TMP/relay.log" nsenter -t "$N_R" -n python3 "$TMP/across.py" relay 24000 \
		10.77.0.3 23001
	port=24000
	within 15 listens "$N_R" || fail "no relay"
	ask "$N_A" 10.77.0.1 24000 word
	told tcp
}
# between: T stands between D and E, 10.78.0.2 and 10.79.0.2
between() {
	place N_T
	place N_D
	place N_E
	in_net "$N_T" sh -c "ip link set lo up
		ip link add td type veth peer name eth0 netns $N_D
		ip link add te type veth peer name eth0 netns $N_E
		ip addr add 10.78.0.1/24 dev td; ip link set td up
		ip addr add 10.79.0.1/24 dev te; ip link set te up
		sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 \
			net.ipv4.conf.td.rp_filter=0 net.ipv4.conf.te.rp_filter=0"
	in_net "$N_D" sh -c "ip addr add 10.78.0.2/24 dev eth0; ip link set eth0 up
		ip link set lo up; ip route add default via 10.78.0.1"
	in_net "$N_E" sh -c "ip addr add 10.79.0.2/24 dev eth0; ip link set eth0 up
		ip link set lo up; ip route add default via 10.79.0.1"
}
# Both addresses and both ports are kept.
scene_tproxy() {
	between
	in_net "$N_T" sh -c "ip rule add fwmark 1 lookup 100
		ip route add local 0.0.0.0/0 dev lo table 100"
	in_net "$N_T" nft -f - <<-'N' || { say "no TPROXY here: not tested"; return; }
	table ip m {
	 chain p {
	  type filter hook prerouting priority -150;
	  iifname "te" meta l4proto tcp socket transparent 1 meta mark set 1 accept
	  iifname "td" tcp dport 23001 meta mark set 1 tproxy to 127.0.0.1:23400 accept
	 }
	}
	N
	ends tproxy word "$N_E"
	start none "$TMP/relay.log" nsenter -t "$N_T" -n python3 "$TMP/across.py" tproxy 23400
	port=23400
	within 15 listens "$N_T" || fail "no proxy"
	ask "$N_D" 10.79.0.2 23001 word
	told tcp
}
# Both addresses and ports, and the client's ISN: the server's is another one behind it.
scene_synproxy() {
	between
	in_net "$N_T" sysctl -qw net.netfilter.nf_conntrack_tcp_loose=0 2>/dev/null
	in_net "$N_T" nft -f - <<-'N' || { say "no SYNPROXY here: not tested"; return; }
	table ip s {
	 chain p {
	  type filter hook prerouting priority raw;
	  iifname "td" tcp dport 23001 tcp flags syn notrack
	 }
	 chain f {
	  type filter hook forward priority 0;
	  ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm
	  ct state invalid drop
	 }
	}
	N
	ends synproxy word "$N_E"
	ask "$N_D" 10.79.0.2 23001 word
	told tcp
}
# The connection's own names and ISNs, on a socket that somebody in another namespace has made: he
# has read them on the way, and even has the key. The client has not got the library.
scene_forged() {
	ends forged word
	place N_F
	in_net "$N_F" sh -c "ip link set lo up
		ip addr add 10.77.0.2/32 dev lo; ip route add 10.77.0.3/32 dev lo"
	rm -f "$TMP"/sniffed
	start none "$TMP/sniff.log" nsenter -t "$N_R" -n python3 "$TMP/across.py" sniff 23001 \
		"$TMP/sniffed"
	within 10 test -e "$TMP/sniffed.ready" || fail "no sniffer"
	start none "$TMP/client.log" nsenter -t "$N_A" -n python3 "$TMP/across.py" client \
		10.77.0.3 23001 word "$TMP/never"
	local client=$PID
	within 10 test -e "$TMP/sniffed" || fail "nothing was read on the way"
	# shellcheck disable=SC2046
	start shim "$TMP/forger.log" nsenter -t "$N_F" -n python3 "$TMP/across.py" forge \
		10.77.0.2 10.77.0.3 23001 $(cat "$TMP/sniffed")
	finish "$PID" 30 || fail "forger: $(cat "$TMP/forger.log")"
	grep -qx forged "$TMP/forger.log" || fail "forger: $(cat "$TMP/forger.log")"
	PID=$client
	told tcp
}
scene_keys() {
	ends keys word
	(umask 077 && head -c 32 /dev/urandom | base64 >"$TMP/key2")
	sed -i "s,key_file .*,key_file $TMP/key2," "$CONF"
	ask "$N_A" 10.77.0.3 23001 word
	told tcp
}
# He is there before the client knocks.
squatted() {
	rm -f "$TMP"/{READY,GO,DONE}."$1"
	ends "squat-$1" word
	start none "$TMP/squat.log" python3 "$TMP/across.py" squat "$DIR" "$1"
	within 10 test -e "$TMP/READY.$1" || fail "no squatter"
	ask "$N_A" 10.77.0.3 23001 word "$TMP/GO.$1"
	told either	# he may lose the name again
	within 30 test -s "$TMP/DONE.$1" || fail "he has found no name"
	rm -f "$TMP/real" "$DIR"/*
}
# Who was met noticed it; mostly he is, before he loses the name.
noticed() {
	[[ ! -e $TMP/met.$1 ]] ||
		grep -q 'did not prove that he has the key' "$TMP/shim.squat-$1" ||
		fail "not noticed"
}
scene_take() {
	squatted take
	! grep -q 'heard [1-9]' "$TMP/squat.log" || fail "something was said to him"
	noticed take
}
scene_pass() {
	squatted pass
	noticed pass
}
scene_silent() { squatted silent; }
# Nobody is led by a link to where its maker may not go himself: of another's, or to a file system
# that never answers.
scene_link() {
	squatted link
	[[ ! -e $TMP/met.link ]] || fail "a link was followed"
}
# After three that have not the key nobody is let in.
scene_knock() {
	squatted knock
	[[ $(grep -cx 'heard 64 0' "$TMP/squat.log") == 3 ]] || fail "$(cat "$TMP/squat.log")"
	((FAST == 0)) || fail "let in after three wrong ones"
}
# Two pairs with the same addresses and ports, at the same time, again and again: what one says is
# answered by its own other end.
scene_twins() {
	local i p k ports=()
	for i in 1 2; do
		place "N_X$i"
		place "N_Y$i"
		x=N_X$i y=N_Y$i
		in_net "${!x}" sh -c "ip link add eth0 type veth peer name eth0 netns ${!y} &&
			ip addr add 10.80.0.1/24 dev eth0 && ip link set eth0 up" ||
			fail "no network"
		in_net "${!y}" sh -c "ip addr add 10.80.0.2/24 dev eth0 && ip link set eth0 up"
	done
	begin_mode twins
	across 'earn_share off' 'earn_bytes 100'
	port=23001
	for i in 1 2; do
		y=N_Y$i
		start shim "$TMP/server$i.log" nsenter -t "${!y}" -n python3 "$TMP/across.py" \
			server 0.0.0.0 23001 "word$i"
		within 15 listens "${!y}" || fail "no server"
	done
	for k in $(seq "${ROUNDS:-15}"); do
		for i in 1 2; do
			x=N_X$i
			start shim "$TMP/client$i.log" nsenter -t "${!x}" -n \
				python3 "$TMP/across.py" client 10.80.0.2 23001 "word$i"
			ports[i]=$PID
		done
		for i in 1 2; do
			finish "${ports[i]}" 30 || fail "round $k: $(cat "$TMP/client$i.log")"
		done
	done
	collect
	say "$FAST bytes on a fast path, on TCP because: $REASONS"
	((FAST > 10000)) || fail "not joined"
}

# Whoever may make files in a directory may keep the kernel's lock of it, for which not even SIGKILL
# ends a wait. So one in which anybody may is not used.
scene_held() {
	begin_mode held
	across 'earn_share off' 'earn_bytes 100' 'discovery 4s'
	echo x >"$DIR/his"
	chmod 1733 "$DIR"
	start none "$TMP/held.log" python3 -S -E "$TOP/tests/hostile/stat_locked.py" directory \
		"$DIR/his" sh -c "touch $TMP/HELD; sleep 7"
	local held=$PID
	within 5 test -e "$TMP/HELD" || { say "no userfaultfd: not tested"; return; }
	ends held word
	ask "$N_A" 10.77.0.3 23001 word
	finish "$PID" 5 || fail "the client waits: $(cat "$TMP/client.log")"
	kill -KILL "$SERVER"
	within 1 ended "$SERVER" || fail "SIGKILL does not end the server"
	[[ -d /proc/$held ]] || fail "the directory was not held all the time"
	finish "$held" 10
	chmod 1770 "$DIR"
}
ended() { ! grep -q '^State:.[^Z]' "/proc/$1/status" 2>/dev/null; }

(($#)) || set -- nobody relay tproxy synproxy forged keys take pass silent link knock twins held
for scene; do
	"scene_$scene"
done
exit 0
