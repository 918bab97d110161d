# RDMA by another network than TCP's, as the policy says: no device on the TCP connection's
# network is a reason, a network of the RDMA device in the policy gives RDMA, the first of several
# that has a device counts. The path MTU: the interface's, or the smaller one of what both ends
# want. Then limits on locked memory.
# HOSTS: 1 2
# DEVICE: rxe
# TIMEOUT: 400
. "${TOP:?}/tests/vm/lib.sh"

addr=${ctl_addr[$PEER]}
common="use rdma both *:*
discovery_port 7471
rdma_networks ${ctl_addr[a]}/32 ${ctl_addr[b]}/32
earn_bytes 0
rdma_retries 5
rdma_ack_timeout 18
rdma_tos 32
discovery 60s
log_level 3"

# What the doctor says of the way to the server's host while its library has the discovery port.
# (In one guest it is the same host.)
doctor_says() {
	rdmastat doctor --no-transfer "$addr:$1" >"$TMP/doctor" 2>&1
	grep -q "^ok   peer port .*accepts connections" "$TMP/doctor" || return 1
	((HOSTS == 1)) || grep -q "^ok   peer discovery .*port 7471 .*the library is there" \
		"$TMP/doctor" || return 1
	grep "peer" "$TMP/doctor"
}

# try NAME LOG LINE [COMMAND...]: a policy with LINE besides, $client and $server for one end; a
# client run by COMMAND has LOG in its log, sends packets of $packets bytes, and its bytes are
# right.
try() {
	local name=$1 log=$2 line=$3 port
	shift 3
	new_port port
	policy "$common" "$line" "${client-}"
	on "$PEER" eval "printf '%s\n' '$common' '$line' '${server-}' >$TMP/srv.conf"
	on "$PEER" start srv env "${SHIM_ENV[@]}" RDMASHIM_CONF="$TMP/srv.conf" pattern listen \
		-a "$addr" -p "$TMP/srv.bytes" -s 4000 -n 1000000000000 -d both "$port"
	on "$PEER" wait_port "$port" || fail "$name: server does not listen"
	rm -f "$TMP/log.cli"
	start cli "$@" env "${SHIM_ENV[@]}" RDMASHIM_LOG_FILE="$TMP/log.cli" \
		pattern connect -p "$TMP/cli.bytes" -s 4000 -n 1000000000000 -d both "$addr" "$port"
	within 60 grep -qs -- "$log" "$TMP/log.cli" ||
		{ cat "$TMP/log.cli"; fail "$name: no '$log'"; }
	[[ $log == *"cut over"* ]] || ! grep -q "cut over" "$TMP/log.cli" ||
		fail "$name: cut over in spite of it"
	[[ -z ${doctor-} ]] || doctor_says "$port" || fail "$name: the doctor: $(cat "$TMP/doctor")"
	[[ -z ${packets-} ]] || grep -q "packets of $packets bytes" "$TMP/log.cli" ||
		{ cat "$TMP/log.cli"; fail "$name: not $packets bytes"; }
	ended cli && fail "$name: client: $(output cli)"
	stop cli KILL || fail "$name: client"
	on "$PEER" finish srv 30
	(($? == 3)) || fail "$name: server: $(on "$PEER" output srv)"
	say "$name: ok"
}

# Root may lock what it likes unless it gives that up.
limited() { echo setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock prlimit --memlock="$1"; }

try "TCP's own network" "TCP: no-rdma-device" "# nothing"
doctor=yes packets=1024 try "the device's network" "receive cut over" "rdma_via 10.1.0.0/24"
packets=256 client="rdma_mtu 512" server="rdma_mtu 256" \
	try "a network without a device before it" "receive cut over" \
	"rdma_via 10.99.0.0/24 [fd77::/64] 10.1.0.0/24"
try "only networks without a device" "TCP: no-rdma-device" "rdma_via 10.99.0.0/24 192.0.2.0/24"
packets=512 client="rdma_mtu 512" server="rdma_mtu 4K" try "IPv6 for TCP's IPv4" \
	"receive cut over" "rdma_via [fd01::/64]"
# shellcheck disable=SC2046
try "64 KiB of locked memory" "TCP: no-memory" "rdma_via 10.1.0.0/24" $(limited 65536)
# The link itself, and not one stream more.
# shellcheck disable=SC2046
try "locked memory for the link alone" "TCP: no-memory" "rdma_via 10.1.0.0/24" $(limited 303104)
