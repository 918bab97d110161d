# Checksummed streams in both directions, over IPv4 and IPv6, through faults in mid-transfer: an
# end stops for seconds, frames are lost, the network goes down and comes back, an end is killed.
# After each fault all that was sent until then arrives, and more is sent; no byte is wrong; RDMA
# was used before each. $VM_ARGS times, or once.
# HOSTS: 1 2
# DEVICE: rxe siw
# EXCEPT: 2.siw
# TIMEOUT: 600
. "${TOP:?}/tests/vm/lib.sh"

rules="use rdma both *:*
discovery_port 7471
rdma_networks $A4/32 $B4/32 [$A6/128] [$B6/128]
earn_bytes 0
rdma_retry 300ms
discovery 60s
log_level ${LEVEL:-3}"
on "$PEER" policy "$rules"
policy "$rules"

# They leave the test itself something of the processors.
gentle=(nice -n 15 env "${SHIM_ENV[@]}")

names=()
# stream NAME HOW ADDR: endless, both ways; each end keeps its figures in a file, the client its
# own log.
stream() {
	local port
	new_port port
	on "$PEER" start "srv$1" "${gentle[@]}" pattern listen -a "$3" -p "$TMP/srv$1.bytes" \
		-s 4000 -n 1000000000000 -d both -w "$2" "$port"
	on "$PEER" wait_port "$port" || fail "server $1 does not listen"
	start "cli$1" "${gentle[@]}" RDMASHIM_LOG_FILE="$TMP/log.$1" \
		pattern connect -p "$TMP/cli$1.bytes" -s 4000 -n 1000000000000 -d both -w "$2" \
		"$3" "$port"
	names+=("$1")
}


# beyond HOST END SENT GOT: it has sent more than that and has got that
beyond() {
	local sent got
	read -r sent got <<<"$(figures "$1" "$2")"
	((sent > $3 && got >= $4))
}

logs() { local n; for n in "${names[@]}"; do echo \
	"--- $n: $(figures a "cli$n") $(figures "$PEER" "srv$n")"; tail -n 30 "$TMP/log.$n"; done; }

# What each end had sent arrives at the other and more is sent: then once more, for what was sent
# since.
flows() {
	local n once cs cg ss sg
	for once in 1 2; do
		for n in "${names[@]}"; do
			read -r cs cg <<<"$(figures a "cli$n")"
			read -r ss sg <<<"$(figures "$PEER" "srv$n")"
			within 60 beyond a "cli$n" "$cs" "$ss" &&
				within 60 beyond "$PEER" "srv$n" "$ss" "$cs" && continue
			logs
			fail "$1: stream $n stands still, look $once: client $cs $cg, server $ss" \
				"$sg"
		done
	done
	say "$1: ok"
}

# Bytes by RDMA of this host's processes since the last call. Nothing of it moves if all has
# stayed with TCP.
by_rdma=0
rdma_moves() {
	local now
	now=$(counter rdma "$(counters)")
	((now > by_rdma)) || return 1
	by_rdma=$now
}
on_rdma() { within 60 rdma_moves && within 60 rdma_moves ||
	{ logs; fail "nothing goes by RDMA $1"; }; }

# stopped HOST NAME: for longer than a full ring is borne
stopped() {
	on_rdma "before $2 is stopped"
	on "$1" eval 'kill -STOP $(pid_of '"$2"')'
	nap 1.5
	on "$1" eval 'kill -CONT $(pid_of '"$2"')'
	flows "$2 stopped"
}

# killed HOST NAME SURVIVOR-HOST SURVIVOR: that one ends, its bytes were right
killed() {
	on "$1" stop "$2" KILL || fail "$2 cannot be killed"
	on "$3" finish "$4" 30
	(($? == 3)) || { logs; fail "$2 was killed, $4: $(on "$3" output "$4")"; }
	say "$2 killed: ok"
}

lossy() {
	local dev=data
	((HOSTS == 2)) || dev=lo
	on_rdma "before frames are lost"
	both tc qdisc add dev $dev root netem loss "$1" || fail "netem"
	flows "$1 of the frames lost"
	both tc qdisc del dev $dev root
}

down_and_up() {
	on_rdma "before the network goes down"
	ip link set data down || fail "link down"
	nap 1.5
	data_up
	flows "network down and up"
	# If its network goes down under load, Soft-RoCE connects nobody any more, plain rping
	# neither, until it is made again.
	[[ $DEVICE == siw ]] || { both device_down rxe && both device_up rxe; } ||
		fail "cannot make the device again"
}

for ((round = 1; round <= ${VM_ARGS:-1}; round++)); do
	say "round $round"
	counters >/dev/null	# those of the killed are shown for the last time
	names=() by_rdma=0
	rm -f "$TMP"/log.*
	stream 4block block "$P4"
	stream 6edge edge "$P6"
	stream 4poll poll "$P4"
	for n in "${names[@]}"; do
		within 60 grep -qs "receive cut over" "$TMP/log.$n" || { logs
		fail "stream $n is not cut over"
		}
	done
	flows "no fault"
	for n in "${names[@]}"; do
		within 60 grep -qs "sends by a ring of" "$TMP/log.$n" || { logs
		fail "the ring of stream $n does not grow"
		}
	done
	stopped "$PEER" srv6edge
	stopped a cli4block
	# Between QPs of one Soft-RoCE device there is no network.
	[[ $HOSTS.$DEVICE == 1.rxe ]] || lossy 2%
	down_and_up
	on_rdma "before the ends are killed"
	killed "$PEER" srv4block a cli4block
	killed a cli6edge "$PEER" srv6edge
	names=(4poll)
	flows "the streams of others killed"
	killed a cli4poll "$PEER" srv4poll
done
