# shellcheck shell=bash
# lib.sh - sourced by the tests on the stand-in driver.
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the stand-in's memory is not a sanitizer's"
export LD_LIBRARY_PATH=$B/gpu

# The stand-in's devices take no turns. SHARED_MIN= says otherwise.
policy() { printf '%s\n' "device_shared_min ${SHARED_MIN-0}" "$@" >"$CONF"; }

bound() {
	local n
	n=$(grep -sc "bound to slot" "$TMP/shim.$MODE")
	gone "$PID" || ((${n:-0} >= 2))
}

# gated CMD...: both ends with the library; the sender's blocks begin when they have a link, so
# that what is tested does not depend on how soon that is. Output in $OUT and client.log; its
# status.
gated() {
	rm -f "$TMP/gate" "$TMP/shim.$MODE"
	start shim "$TMP/client.log" env GATE="$TMP/gate" bash -c 'exec "$@" 2>&1 >"$0"' "$OUT" "$@"
	within 40 bound || fail "no link"
	: >"$TMP/gate"
	finish "$PID" 60
}
