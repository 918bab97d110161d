#!/bin/bash
# What another user's process can do to one whose policy does not name him: nothing. No discovery
# socket is opened for his connections, he is shown the door at others', whatever he brings along,
# and both ends say why they stay on TCP.
# TIMEOUT: 60
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -x $B/hostile/peer ]] || fail "no $B/hostile/peer"
((EUID == 0)) || skip "not root: no other user can be had"
MODE=both
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0' 'discovery 300ms'
chmod 644 "$CONF"
cp "$B/hostile/victim" "$TMP"	# the tree may be where only root can go
as_other=(setpriv --reuid 31337 --regid 31337 --clear-groups)

free_port port
start shim "$TMP/echo.log" "$B/hostile/victim" echo "$port"
echo_pid=$PID
wait_port "$port"
"$B/hostile/peer" call "$port" "$echo_pid" stranger-calls stranger-freezes claims-other 3>&- ||
	fail "the victim let a stranger in"

# With the library at both ends: all by TCP, all right, and each end says why.
mkdir -m 777 "$TMP/theirs"
shim_env
start none "$TMP/ask.log" "${as_other[@]}" env "${SHIM_ENV[@]}" RDMASHIM_STAT_DIR="$TMP/theirs/d" \
	"$TMP/victim" ask "$port" "$TMP/theirs/asked"
ask_pid=$PID
sum() { od -An -tu8 -N8 "$TMP/theirs/asked" 2>/dev/null || echo 0; }
under_way() { (($(sum) > 200000)); }
within 10 under_way || fail "the other user's client is not served: $(cat "$TMP/ask.log")"
said() { grep -q other-user <<<"$(RDMASHIM_STAT_DIR=$1 "$TMP/rdmastat" -c 2>/dev/null)"; }
within 5 said "$STAT" ||
	fail "the server does not say other-user: $(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" -c)"
within 5 said "$TMP/theirs/d" ||
	fail "the client does not say other-user:" \
	"$(RDMASHIM_STAT_DIR=$TMP/theirs/d "$TMP/rdmastat" -c)"

# Whom the policy names, at both ends, shares memory: the running connection, too.
policy 'earn_bytes 0' 'earn_rounds 0' 'discovery 2s' 'peer_users 31337'
fast() { RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json --all | python3 -S -E -c 'import json, sys
sys.exit(json.load(sys.stdin)["total"]["bytes"]["shm"] < 100000)'; }
within 10 fast || fail "the user whom the policy names stays on TCP"
running() {
	[[ $(RDMASHIM_STAT_DIR=$TMP/theirs/d "$TMP/rdmastat" conn -o fd tx shm rx shm) == *3* ]]
}
within 10 running ||
	fail "the connection that ran stays on TCP:" \
	"$(RDMASHIM_STAT_DIR=$TMP/theirs/d "$TMP/rdmastat" conn)"
kill -KILL "$echo_pid"
within 2 gone "$echo_pid" || fail "SIGKILL does not end the server"
kill -KILL "$ask_pid"
exit 0
