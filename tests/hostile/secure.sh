#!/bin/bash
# A set-user-id program that loads the library (it is linked with it: the loader ignores the
# preload): nothing of the environment is believed, nothing is written, no connection leaves TCP.
# The same program without the bit does all of that.
# TIMEOUT: 60
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -z ${SAN-} ]] || skip "a program that is linked with the library would have to be linked with" \
	"the sanitizer's runtime first"
((EUID == 0)) || skip "only root can make it"
OWNER=31337 USER=31338
MODE=both
begin_mode both
mkdir -m 1777 "$TMP/open"
chown "$USER" "$STAT"
policy 'earn_bytes 0' 'earn_rounds 0' 'log_level 4'
chmod 644 "$CONF"
gcc -std=gnu11 -D_GNU_SOURCE -O1 -o "$TMP/plain" "$TOP/tests/hostile/victim.c" -Wl,--no-as-needed \
	-L"$TMP" -lrdmashim -Wl,-rpath,"$TMP" || fail "no compiler"
cp "$TMP/plain" "$TMP/setuid"
cp "$B/hostile/victim" "$TMP"	# the tree may be where only root can go
chown "$OWNER" "$TMP/setuid" && chmod 4755 "$TMP/setuid"
as() { setpriv --reuid "$USER" --regid "$USER" --clear-groups "$@"; }
[[ $(as "$TMP/setuid" 2>&1) == usage* ]] || fail "the program does not start"

# runs PROGRAM: what it does with a server that has the library. FAST: bytes on the fast path,
# WROTE: files that the client has written.
runs() {
	free_port port
	rm -rf "${TMP:?}/open"/* "${STAT:?}"/*
	shim_env
	start none "$TMP/server.log" setpriv --reuid "$USER" --regid "$USER" \
		--clear-groups env "${SHIM_ENV[@]}" RDMASHIM_LOG_FILE="$TMP/open/server" \
		"$TMP/victim" echo "$port"
	local srv=$PID
	wait_port "$port"
	as env RDMASHIM_CONF="$CONF" RDMASHIM_STAT_DIR="$STAT" RDMASHIM_LOG=4 \
		RDMASHIM_LOG_FILE="$TMP/open/client" RDMASHIM_STATS=1 \
		"$TMP/$1" once "$port" 16 >"$TMP/client.log" 2>&1 ||
		fail "$1: $(tail -n 3 "$TMP/client.log")"
	stop "$srv"
	grep -q '^3840000 bytes$' "$TMP/client.log" || fail "$1: $(tail -n 3 "$TMP/client.log")"
	collect
	WROTE=$(find "$TMP/open" -name 'client*' | wc -l)
	SAID=$(grep -vc '^3840000 bytes$' "$TMP/client.log")
}
runs plain
say "as an ordinary program: $FAST bytes on a fast path, $WROTE files written"
((FAST > 0 && WROTE > 0)) || fail "the program without the bit did nothing: this shows nothing"
runs setuid
say "set-user-id: $FAST bytes on a fast path, $WROTE files written"
((FAST == 0 && WROTE == 0 && SAID == 0)) || fail "the library was at work in a set-user-id program"
exit 0
