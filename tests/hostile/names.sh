#!/bin/bash
# Names of files, programs and words that steer a terminal: nothing of them does, whatever rdmastat,
# rdmarun and the library print.
# TIMEOUT: 180
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -z ${SAN-} ]] || skip "a sanitizer has lines of its own"
begin_mode both
cp "$B/rdmarun" "$TMP/"
mkdir -m 700 "$TMP/names"
timeout 170 python3 -S -E "$TOP/tests/hostile/names.py" "$TMP/rdmastat" "$TMP/rdmarun" "$SHIM" \
	"$TMP/names" || fail "see above"
exit 0
