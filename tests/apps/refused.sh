#!/bin/bash
# Calls that cannot succeed change nothing for good: each gives the error that it gives without the
# library, and the connection beside it is on the fast path again, though a call that succeeds would
# have sent it, or the whole process, to TCP.
# TIMEOUT: 200
. "$(dirname "$0")/lib.sh"
policy "earn_bytes 0" "earn_rounds 0"

job() {
	local fast=
	[[ $MODE == both ]] && fast=fast
	client timeout 150 "$B/apps/refused" $fast >>"$OUT" 2>"$TMP/client.log" ||
		fail "status $?: $(<"$TMP/client.log")"
	(($(grep -c ' -1 ' "$OUT") == $(wc -l <"$OUT"))) ||
		fail "one of them has succeeded: $(grep -v ' -1 ' "$OUT")"
}
MODES="bare both" for_modes job 16384
diff <(sed -n 's/^CASE(\([a-z_]*\)),$/\1/p' <(tr -d '\t' <"$TOP/tests/apps/refused.c") | sort) \
	<(sed -n '/^## Calls that need TCP/,$p' "$TOP/docs/calls.md" | grep '^|' |
	sed 's/.*|\(.*\)|$/\1/' |
		grep -o '`[a-z_]*`' | tr -d '`' | sort) ||
	fail "docs/calls.md (>) has other cases than tests/apps/refused.c (<)"
