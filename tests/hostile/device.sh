#!/bin/bash
# A hostile peer on the device lane, on the stand-in driver: lies_device.h says how it lies.
#	device.sh [SCENARIO...]
# TIMEOUT: 120
. "$(dirname "$0")/../gpu/lib.sh"
[[ -x $B/hostile/peer && -x $B/gpu/echo ]] || fail "not built"
MODE=both
begin_mode both
export STANDIN_DELAY=60
policy 'earn_bytes 0' 'earn_rounds 0' 'peer_users 31337' 'device eager' 'force_defer on' \
	'log_level 3'
ulimit -n 10240
SEED=${SEED:-$((RANDOM % 10000))}
export SEED
(($#)) || set -- device-own device-beyond device-handles device-rings device-twice device-other \
	device-becomes
free_port port
start shim "$TMP/echo.log" "$B/gpu/echo" "$port" S
echo_pid=$PID
wait_port "$port"
rc=0
"$B/hostile/peer" call "$port" "$echo_pid" "$@" 3>&- || rc=1
kill -TERM "$echo_pid"
wait "$echo_pid" || { say "the victim failed, status $?: $(tail -n 5 "$TMP/echo.log")"; rc=1; }
collect
say "$FAST bytes on a fast path"
((FAST > 1000000)) || { say "hardly a byte on a fast path"; rc=1; }
exit $rc
