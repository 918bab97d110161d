#!/bin/bash
# A server that moves into an empty root directory: the policy that it has read goes on, a good one
# inside takes its place, and nothing else does.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}
((UID == 0)) || skip "only root can call chroot()"

# What is expected of the client's bytes: fast or tcp.
talk() {
	local port what=$1 dir=$2
	free_port port
	server /usr/bin/python3 "$TOP/tests/apps/chroot.py" server "$port" "$dir"
	wait_port "$port"
	client timeout 50 /usr/bin/python3 "$TOP/tests/apps/chroot.py" client "$port" >>"$OUT" \
		2>"$TMP/client.log" ||
		fail "$what: $(cat "$TMP/client.log" "$TMP/server.log")"
	stop "$SRV"
	[[ $MODE == both ]] || return 0
	collect
	say "$what: $FAST bytes on a fast path, on TCP because: $REASONS"
	rm -rf "$STAT"
	mkdir -m 700 "$STAT"
	case $3 in
	fast) ((FAST > 1000000)) ;;
	tcp) ((FAST == 0)) ;;
	esac || fail "$what: expected $3"
}

job() {
	local jail=$TMP/jail
	policy 'earn_bytes 0' 'earn_rounds 0'
	mkdir -p "$jail"
	talk "an empty root" "$jail" fast
	mkdir -p "$jail$TMP"
	echo 'nonsense' >"$jail$CONF"
	talk "a bad policy inside" "$jail" fast
	printf 'earn_bytes 0\n' >"$jail$CONF"
	chown 1001 "$jail$CONF"
	talk "a stranger's policy inside" "$jail" fast
	printf 'mode off\n' >"$jail$CONF"
	chown 0 "$jail$CONF"
	talk "a good policy inside" "$jail" tcp
	rm -rf "$jail"
}
for_modes job none
