#!/bin/bash
# What the linker and the compiler can do against an intruder is on: all relocations are read-only
# once the library or a tool is loaded, no memory is both writable and executable, buffers on the
# stack are guarded, calls that know the size of what they fill are checked; the tools are at any
# address.
# TIMEOUT: 30
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "a sanitizer has its own"
rc=0
wrong() { say "$*"; rc=1; }

for f in "$SHIM" "$B/rdmastat" "$B/rdmarun"; do
	name=$(basename "$f")
	segments=$(readelf -lW "$f") dynamic=$(readelf -dW "$f") \
		symbols=$(nm -D --undefined-only "$f")
	grep -q 'GNU_RELRO' <<<"$segments" && grep -qE 'BIND_NOW|Flags:.* NOW' <<<"$dynamic" ||
		wrong "$name: relocations stay writable"
	grep -q 'GNU_STACK.* RW  ' <<<"$segments" || wrong "$name: the stack is executable"
	grep -qE '^ +LOAD.* RWE ' <<<"$segments" &&
		wrong "$name: a segment is writable and executable"
	grep -q TEXTREL <<<"$dynamic" && wrong "$name: its code has relocations"
	grep -q '__stack_chk_fail' <<<"$symbols" || wrong "$name: no function guards its stack"
	grep -qE '__[a-z]+_chk@' <<<"$symbols" || wrong "$name: built without _FORTIFY_SOURCE"
	grep -q 'DYN (' <<<"$(readelf -hW "$f")" || wrong "$name: at a fixed address"
done

# Loaded and at work: nothing of it can be written and run.
free_port port
MODE=both
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
start shim "$TMP/server.log" "$B/hostile/victim" echo "$port"
server=$PID
wait_port "$port"
start shim "$TMP/client.log" "$B/hostile/victim" once "$port" 16 10
within 20 grep -q ' bytes$' "$TMP/client.log" || fail "$(cat "$TMP/client.log")"
awk '$2 ~ /w.*x/' "/proc/$server/maps" >"$TMP/both"
[[ -s $TMP/both ]] && wrong "writable and executable: $(cat "$TMP/both")"
maps=$(grep librdmashim "/proc/$server/maps")
grep -q ' r--p ' <<<"$maps" && grep -q ' rw-p ' <<<"$maps" ||
	wrong "the library's mappings are odd: $maps"
stop "$PID"
stop "$server"
exit $rc
