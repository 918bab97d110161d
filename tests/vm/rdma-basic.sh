# One connection is cut over to RDMA, bytes are right in both directions, and every path of the way is counted.
# HOSTS: 1 2
# DEVICE: rxe siw
# EXCEPT: 2.siw
# TIMEOUT: 400
. "${TOP:?}/tests/vm/lib.sh"

rules="use rdma both *:*
rendezvous_port 7471
rdma_networks $A4/32 $B4/32
earn_bytes 0
rendezvous 60s
log_level ${LEVEL:-3}"
on "$PEER" policy "$rules"
policy "$rules"

mkdir -m 700 $TMP/own	# the client's counters

# by_rdma FIGURE: how long a link takes is the machine's business, so each run of the client is twice as long until one
# has seen it. All bytes of all runs must be right.
by_rdma() {
	local port secs line
	new_port port
	on "$PEER" start "srv$port" shim sockbench -s "$port" -n 100
	on "$PEER" wait_port "$port" || fail "server does not listen"
	for secs in 0.4 0.8 1.6 3.2 6.4 12.8 25.6 51.2; do
		rm -f $TMP/shim.log
		timeout 200 env "${SHIM_ENV[@]}" RDMASHIM_STAT_DIR=$TMP/own sockbench -c "$P4" "$port" -v -t $secs -f "$1" || fail "client: $1"
		line=$(counters $TMP/own)
		say "$1, $secs s: client: $line"
		(($(counter rdma "$line") > 10000)) && break
	done
	cat $TMP/shim.log
	(($(counter rdma "$line") > 10000)) || { on "$PEER" cat $TMP/shim.log; fail "$1: hardly anything went by RDMA"; }
	on "$PEER" stop "srv$port" KILL || fail "server"
}
by_rdma rtt_64
by_rdma stream_65536
