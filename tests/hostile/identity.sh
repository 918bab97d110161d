#!/bin/bash
# Who holds the other end, where it is not plain: user namespaces, a listener that another user's
# child inherited, a server that became another user after accept(), connections that are accepted
# late, the same 4-tuple again and again, another pid namespace on the same network. Bytes are
# right in any case; the fast path is taken where the kernel attests the end, and only there.
# TIMEOUT: 180
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
((EUID == 0)) || skip "not root"
[[ -z ${SAN-} ]] || skip "Python under a sanitizer is slow, and what is tested is the kernel's" \
	"answers"
unshare -U true 2>/dev/null || skip "no user namespaces"
cp "$(dirname "$0")/identity.py" "$(dirname "$0")/../apps/echo.py" "$TMP"
chmod 644 "$TMP"/*.py
# Not in /tmp: who is mapped nowhere cannot tell root's files there from a stranger's, and has no
# policy.
CONF=$(mktemp /run/rdmashim-identity.XXXXXX) && chmod 644 "$CONF" || skip "no place for a policy"
trap 'status=$?; rm -f "$CONF"; (exit $status); cleanup' EXIT
as_other=(setpriv --reuid 31337 --regid 31337 --clear-groups)

# counters NAME.END: FAST bytes there, REASONS
counters() {
	read -r FAST REASONS < <(RDMASHIM_STAT_DIR=$TMP/$1 "$TMP/rdmastat" --json --all |
		python3 -S -E -c 'import json, sys
t = json.load(sys.stdin)["total"]
print(t["bytes"]["shm"], " ".join(r["reason"] for r in t["reasons"]) or "-")')
}

# scene NAME fast|tcp|REASON SERVER-WRAPPER CLIENT-WRAPPER SERVER-ARGS CLIENT-ARGS
scene() {
	local name=$1 want=$2 server client fast reasons
	begin_mode "$name"
	policy 'peer_users any' "earn_bytes ${EARN:-0}" \
		"earn_rounds $([[ -n ${EARN-} ]] && echo 1000000 || echo 0)" 'log_level 3' \
		"$([[ $want == fast ]] && echo 'discovery 2s' || echo 'discovery 100ms')"
	free_port port
	for e in s c; do
		mkdir -m 1777 "$TMP/$name.$e"
	done
	shim_env
	# shellcheck disable=SC2086
	start none "$TMP/server.log" $3 env "${SHIM_ENV[@]}" RDMASHIM_LOG_FILE="$TMP/$name.s/log" \
		RDMASHIM_STAT_DIR="$TMP/$name.s/d" python3 "$TMP/identity.py" server "$port" $5
	server=$PID
	wait_port "$port"
	# shellcheck disable=SC2086
	$4 timeout 50 env "${SHIM_ENV[@]}" RDMASHIM_LOG_FILE="$TMP/$name.c/log" \
		RDMASHIM_STAT_DIR="$TMP/$name.c/d" python3 "$TMP/identity.py" client "$port" \
		$6 >"$TMP/client.log" 2>&1 3>&- ||
		fail "$(tail -n 3 "$TMP/client.log" "$TMP"/server.log)"
	pkill -TERM -P "$server" 2>/dev/null
	kill -TERM "$server" 2>/dev/null
	within 10 gone "$server" || kill -KILL "$server"
	wait "$server" 2>/dev/null
	counters "$name.c/d"
	fast=$FAST reasons=$REASONS
	counters "$name.s/d"
	say "$((fast + FAST)) bytes on a fast path; client: $reasons, server: $REASONS"
	if [[ $want == fast ]]; then
		((fast > 100000)) || fail "nothing on the fast path"
	else
		((fast + FAST == 0)) || fail "bytes on a fast path"
		[[ " $reasons $REASONS " =~ $want ]] || fail "no reason $want"
	fi
}

scene plain fast "" "" "" ""
scene mapped-user fast "" "unshare -Ur" "" ""
scene unmapped-client 'nobody' "${as_other[*]}" "${as_other[*]} unshare -U" "" ""
scene unmapped-both 'nobody' "${as_other[*]} unshare -U" "${as_other[*]} unshare -U" "" ""
scene inherited-listener fast "" "" inherited ""
EARN=60K scene dropped-after-accept 'identity|peer-no-shim' "" "" dropped ""
scene accepted-late fast "" "" late ""
scene same-tuple fast "" "" "" "5 $((10000 + RANDOM % 9000))"
scene pid-namespace fast "unshare -pf --kill-child --mount-proc" "" "" ""
exit 0
