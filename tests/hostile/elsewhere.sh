#!/bin/bash
# A program's connection is in another network namespace than the library's thread, which was there
# before the program moved: what the kernel says of the same names in the thread's own namespace is
# of another connection, and whoever has that proves nothing.
# TIMEOUT: 60
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
((EUID == 0)) || skip "not root"
[[ -z ${SAN-} ]] || skip "Python under a sanitizer is slow"
unshare -n ip link set lo up 2>/dev/null || skip "no network namespaces"
cp "$(dirname "$0")/elsewhere.py" "$TMP"

begin_mode elsewhere
policy 'earn_bytes 0' 'earn_rounds 0' 'discovery 2s' 'log_level 3'
free_port port
free_port source
log=$TMP/server.own
shim_env
: >"$log"
start none "$TMP/server.log" env "${SHIM_ENV[@]}" RDMASHIM_LOG_FILE="$log" \
	python3 "$TMP/elsewhere.py" server "$port" "$source" "$TMP"
server=$PID
start shim "$TMP/thief.log" python3 "$TMP/elsewhere.py" thief "$port" "$source" "$TMP"
# Of the connection before there are two lines, one for each end.
search_over() { (($(grep -cE ': bound to|: stays on TCP' "$log") > 2)); }
within 15 search_over || fail "no end of the search: $(cat "$TMP"/*.log "$log")"
within 15 grep -qsE ': stays on TCP|send cut over' "$TMP/shim.elsewhere" ||
	fail "the thief looks for ever"
touch "$TMP/known"
finish "$server" 20 || fail "$(cat "$TMP"/*.log)"
read -r _ fd _ got <"$TMP/server.log"
grep -q ': bound to' "$log" || fail "nothing on the fast path where all is in one namespace"
! grep -q "fd $fd: bound to" "$log" || fail "bound to whoever has the same names elsewhere"
[[ $got == "from the guest" ]] || fail "the server got: $got"
grep -q 'guest got for the guest' "$TMP/server.log" || fail "$(cat "$TMP/server.log")"
say "$(tail -n 1 "$TMP/server.log"), $(cat "$TMP/thief.log")"
exit 0
