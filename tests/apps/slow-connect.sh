#!/bin/bash
# A client whose connect() returns late: the server has accepted long since, looks for the other
# end, and must see by its socket that the library is there. Otherwise it gives up after 100 ms
# and stays on TCP for good.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "a sanitizer under strace"
strace -qq -o /dev/null -e inject=connect:delay_exit=1 true 2>/dev/null ||
	skip "strace may not trace here, or cannot delay calls"
MODES=both
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
free_port port
start shim "$TMP/server.log" "$B/apps/idle" server epoll "$port"
SRV=$PID
wait_port "$port"
mkfifo "$TMP/fifo"
shim_env
start none "$TMP/client.log" strace -f -qq -o "$TMP/calls" \
	-e trace=connect -e inject=connect:delay_exit=500000:when=1 \
	env "${SHIM_ENV[@]}" "$B/apps/idle" client epoll "$port" 1 "$TMP/fifo"
CLIENT=$PID
exec 4<>"$TMP/fifo"
within 20 grep -qs connected "$TMP/client.log" || fail "no connection: $(cat "$TMP/client.log")"
grep -q DELAYED "$TMP/calls" || fail "connect() was not delayed: $(tail -n 3 "$TMP/calls")"
echo "run 20" >&4
took=$(python3 -S -E "$TOP/tests/apps/live.py" "$TMP/rdmastat" "$STAT" "$port" 2 10 \
	"c['tx_path'] == c['rx_path'] == 'shm'") || fail "$took"
say "on the path $took"
echo quit >&4
finish "$CLIENT" 20 || fail "$(cat "$TMP/client.log")"
