#!/bin/bash
# HOSTS: 1 2
# DEVICE: rxe siw
# EXCEPT: 2.siw
# TIMEOUT: 150
# What all RDMA tests stand on: the device has an active port, and librdmacm and plain verbs move
# bytes between the ends, over IPv4 and IPv6.
. "${TOP:?}/tests/vm/lib.sh"

# active HOST: what ibv_devinfo, which knows nothing of our set-up, says.
active() { on "$1" ibv_devinfo -d "${DEVICE}0" 2>&1 | grep 'state:.*PORT_ACTIVE'; }
for h in a $PEER; do
	active "$h" || fail "no active port on host $h: $(on "$h" ibv_devinfo 2>&1 | head -n 20)"
done

# rping verifies what comes back (-V).
ping() {
	local addr=$1 port
	new_port port
	on "$PEER" start "rping$port" rping -s -a "$addr" -p "$port" -V -C 20 -S 1000
	on "$PEER" wait_rdma_port "$port" || fail "rping's server"
	# Its end is a race of its two threads, one of which may ask a channel that the other has
	# closed.
	if ! timeout 60 rping -c -a "$addr" -p "$port" -v -V -C 20 -S 1000 >"$TMP/rping" 2>&1; then
		grep -qx 'rdma_get_cm_event: Bad file descriptor' "$TMP/rping" ||
			fail "rping to $addr: $(tail -n 5 "$TMP/rping")"
	fi
	[[ $(grep -c '^ping data: ' "$TMP/rping") == 20 ]] ||
		fail "rping to $addr: not 20 rounds: $(cut -c 1-100 "$TMP/rping")"
	on "$PEER" finish "rping$port" 20 || fail "rping's server after $addr"
	say "rping $addr: 20 round trips of 1000 bytes are right"
}
ping "$P4"
ping "$P6"

# perftest ADDR PROGRAM OPTIONS...: by librdmacm (-R), for iWARP knows no other way
perf() {
	local addr=$1 port
	shift
	new_port port
	on "$PEER" start "$1$port" "$@" -R -F -p "$port"
	on "$PEER" wait_rdma_port "$port" || fail "$1's server"
	timeout 60 "$@" -R -F -p "$port" "$addr" >"$TMP/perf" 2>&1 ||
		fail "$* to $addr: $(tail -n 5 "$TMP/perf")"
	on "$PEER" finish "$1$port" 20 || fail "$1's server after $addr"
	grep -A 9 '#bytes' "$TMP/perf" | grep '^ *[0-9]' ||
		fail "$1 gave no figure: $(tail -n 5 "$TMP/perf")"
}
perf "$P4" ib_send_lat -e -s 64 -n 100
perf "$P4" ib_write_bw -s 65536 -n 20
