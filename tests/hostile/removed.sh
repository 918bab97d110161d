#!/bin/bash
# A user is taken out of the policy (peer_users) while processes of his have connections on the
# fast path: these go on by TCP with all their bytes, the memory that was shared is given up, and
# nothing is passed to him any more; whether his process does what is asked of it, is stopped, or
# lies. Named again, they share memory again.
# TIMEOUT: 120
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -x $B/hostile/peer ]] || fail "no $B/hostile/peer"
((EUID == 0)) || skip "not root: no other user can be had"
[[ -z ${SAN-} ]] || skip "Python under a sanitizer is slow"
MODE=both
begin_mode both
named=('earn_bytes 0' 'earn_rounds 0' 'spin 0' 'peer_users 31337')
removed=('earn_bytes 0' 'earn_rounds 0' 'spin 0' 'log_level 2')
policy "${named[@]}"
cp "$TOP"/tests/apps/echo.py "$TOP/tests/hostile/removed.py" "$TMP"
as_other=(setpriv --reuid 31337 --regid 31337 --clear-groups)
mkdir -m 777 "$TMP/theirs"

free_port port
start shim "$TMP/server.log" python3 -S -E "$TMP/removed.py" server "$port"
server=$PID
wait_port "$port"

# Their policy names us all the time.
theirs() {
	shim_env
	printf '%s\n' "${named[@]}" >"$TMP/theirs.conf"
	start none "$TMP/$1.log" "${as_other[@]}" env "${SHIM_ENV[@]}" \
		RDMASHIM_CONF="$TMP/theirs.conf" RDMASHIM_LOG_FILE="$TMP/theirs/log" \
		RDMASHIM_STAT_DIR="$TMP/theirs/d" python3 -S -E "$TMP/removed.py" client "$port" 4 \
		"$TMP/stop.$1"
}
ours() {
	start shim "$TMP/$1.log" python3 -S -E "$TMP/removed.py" client "$port" "$2" "$TMP/stop.$1"
}
segments() { grep -c 'memfd:rdmashim' "/proc/$server/maps"; }
maps() { (($(segments) == $1)); }
rounds() { sed -n 's/^rounds //p' "$TMP/$1.log" | tail -n 1; }
goes_on() { (($(rounds "$1") > $2)); }
# paths TX RX REASON COUNT: as many of the server's connections are so
paths() {
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" -c --json | python3 -S -E -c 'import json, sys
n = sum(str(c["pid"]) == sys.argv[1] and [c["tx_path"], c["rx_path"], c["reason"]] == sys.argv[2:5]
    for c in json.load(sys.stdin)["connections"])
sys.exit(n != int(sys.argv[5]))' "$server" "$@"
}
what() { RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" -c; }

# ---- an honest one, beside one of our own
ours mine 6
theirs honest
honest=$PID
within 10 paths shm shm - 10 || fail "not on the fast path: $(what)"
one=$(($(segments) / 2))
policy "${removed[@]}"
within 5 paths tcp tcp other-user 4 ||
	fail "the removed user's connections do not leave the fast path: $(what)"
within 5 maps "$one" || fail "the memory that was shared with him is still there"
paths shm shm - 6 || fail "our own user's do: $(what)"
for who in honest mine; do
	within 10 goes_on "$who" $(($(rounds "$who") + 30)) ||
		fail "$who does not go on: $(cat "$TMP/$who.log")"
done
policy "${named[@]}"
within 10 paths shm shm - 10 || fail "named again, and not on the fast path: $(what)"

# ---- one that is stopped: its connections wait as long as an exec would, then it has lost them
kill -STOP "$honest"
policy "${removed[@]}"

# ---- one that lies: it never releases the fast path, and learns of none of the threads that
# begin to wait meanwhile
policy "${named[@]}"
export REMOVED=$TMP/theirs/liar
start none "$TMP/liar.log" "$B/hostile/peer" call "$port" "$server" removed
liar=$PID
within 10 test -e "$REMOVED.ready" || fail "the liar does not get in: $(cat "$TMP/liar.log")"
t=$SECONDS
policy "${removed[@]}"
within 5 paths shm shm - 6 || fail "our own client is not where it was, or the liar is: $(what)"
touch "$REMOVED.out"
ours more 3
within 10 paths shm shm - 9 || fail "our own new ones are not on the fast path: $(what)"
touch "$TMP/stop.more"
within 10 grep -q 'all right' "$TMP/more.log" || fail "$(cat "$TMP/more.log")"
touch "$REMOVED.checked"
finish "$liar" 20 || fail "$(cat "$TMP/liar.log")"
given_up() { maps "$one"; }
within 40 given_up || fail "after $((SECONDS - t)) s the memory of the one that is stopped is" \
	"still there"
gone "$honest" && fail "the stopped process is gone"
kill -CONT "$honest"
touch "$TMP/stop.mine"
within 10 grep -q 'all right' "$TMP/mine.log" || fail "$(cat "$TMP/mine.log")"
stop "$server"
exit 0
