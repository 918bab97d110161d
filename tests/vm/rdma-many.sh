# A thousand connections between two processes, all by RDMA on one link: each byte is right, and
# no connection has more than 64 KiB of memory registered, both its rings together.
# HOSTS: 1
# DEVICE: rxe siw
# TIMEOUT: 600
. "${TOP:?}/tests/vm/lib.sh"
CONNS=${VM_ARGS:-1000}

# Each end gives away half of a link's places.
policy "use rdma both *:*
discovery_port 7471
rdma_networks $A4/32 $B4/32
rdma_streams $((CONNS * 2 < 4096 ? CONNS * 2 : 4096))
earn_bytes 0
discovery 60s
log_level ${LEVEL:-2}"
ulimit -n 8192

# of the device's users: "connections links", both processes together
now() {
	rdmastat --json dev |
		awk -F '[ ":,]+' \
		'$2 == "connections" { c = $3 } $2 == "links" { l = $3 } END { print c + 0, l + 0 }'
}
all_there() { [[ $(RDMASHIM_STAT_DIR=$TMP/stat now) == "$((2 * CONNS)) 2" ]]; }

new_port port
start srv shim env IDLE_ADDR="$P4" idle server epoll "$port"
wait_port "$port" || fail "server does not listen"
mkfifo "$TMP/commands"
start cli shim env IDLE_ADDR="$P4" idle client epoll "$port" "$CONNS" "$TMP/commands"
exec {commands}>"$TMP/commands"
rounds=0
for ((i = 0; i < 60; i++)); do
	echo "go 1" >&$commands
	rounds=$((rounds + 1))
	within 60 eval 'ended cli || (($(output cli | grep -c ^done) >= rounds))' && ! ended cli ||
		fail "client: $(output cli)"
	all_there && break
	nap 1
done
all_there || { tail -n 40 "$TMP/shim.log"; fail "not $((2 * CONNS)) ends on one link at each" \
	"process, but $(RDMASHIM_STAT_DIR=$TMP/stat now)"; }
echo "go 5" >&$commands
within 60 eval 'ended cli || (($(output cli | grep -c ^done) > rounds))' && ! ended cli ||
	fail "client: $(output cli)"
for p in srv cli; do
	pinned=$(awk '$1 == "VmPin:" { print $2 }' "/proc/$(pid_of $p)/status")
	say "$p: $CONNS connections, $pinned KiB registered, $((pinned / CONNS)) each"
	((pinned > CONNS)) || fail "$p: nothing registered? the test tests nothing"
	((pinned <= 64 * CONNS + 1024)) || fail "$p: more than 64 KiB a connection"
done
echo "quit" >&$commands
finish cli 60 || fail "client: $(output cli)"
stop srv KILL
