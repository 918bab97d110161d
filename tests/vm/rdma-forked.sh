# A child that a server forked while it was on RDMA, and that lives on without touching anything,
# keeps nothing of RDMA: the device can be deleted, and the server's queue pairs end when the
# server is killed.
# HOSTS: 1
# DEVICE: rxe siw
. "${TOP:?}/tests/vm/lib.sh"

policy "use rdma both *:*
discovery_port 7471
rdma_networks $A4/32
earn_bytes 0
rdma_retry 300ms
log_level 3"

# shellcheck disable=SC2002  # a file that is not there yet has none
cuts() { cat "$TMP/shim.log" 2>/dev/null | grep -c "cut over"; }
is_cut() { (($(cuts) >= $1)); }
moves() { local is; is=$(stat -c %s "$TMP/moved"); within 30 grew "$is"; }
grew() { (($(stat -c %s "$TMP/moved") > $1 + 20)); }
child_of() { pgrep -P "$(pid_of "$1")" >"$TMP/child"; }
# shellcheck disable=SC2143  # grep -q would end the pipe early
no_qp() { [[ -z $(rdma resource show qp 2>/dev/null | grep -v "type GSI\|type SMI") ]]; }

# echoes NAME: a server that is on RDMA with both halves of a connection, and then has a child.
echoes() {
	local before
	before=$(cuts)
	new_port port
	start "$1" shim python3 tests/vm/rdma-forker.py serve "$P4" "$port"
	wait_port "$port" || fail "the server does not listen"
	: >"$TMP/moved"
	start "$1.cli" shim python3 tests/vm/rdma-forker.py ask "$P4" "$port" "$TMP/moved"
	within 60 is_cut $((before + 4)) || { tail "$TMP/shim.log"; fail "not on RDMA"; }
	kill -USR1 "$(pid_of "$1")"
	within 20 child_of "$1" || fail "no child"
	moves || fail "nothing moves beside the child"
}

echoes one
device_down "$DEVICE" || fail "cannot delete the device"
moves || fail "nothing moves on TCP"
device_up "$DEVICE" || fail "cannot make the device again"
stop one KILL; stop one.cli KILL
kill "$(<"$TMP/child")"

echoes two
no_qp && fail "no queue pair is shown"
stop two KILL; stop two.cli KILL
kill -0 "$(<"$TMP/child")" || fail "the child has ended"
within 30 no_qp || { rdma resource show qp; device_users; fail "queue pairs of the dead"; }
say "deleted beside a child; no queue pair of a parent that is dead"
