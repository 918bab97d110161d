#!/bin/bash
# Bytes of which TCP has a part when they are read, and a cut or a rewind still moves the rest: a
# read, a peek, FIONREAD and a poll find all that was sent before. inparts.c says in which orders.
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library"
begin_mode both
export RDMASHIM_STAT_DIR=$STAT RDMASHIM_LOG_FILE=$TMP/shim.both
export RDMASHIM_CONF=$CONF INPARTS_PRELOAD=$PRELOAD

ALL='16 0123456789abcdef'
rc=0
finds() {	# ORDER ASKS WHAT
	local said
	policy 'earn_bytes 0' 'earn_rounds 0'
	said=$(timeout 60 "$B/apps/inparts" "$1" "$2" 2>&1)
	[[ $said == "$3" ]] && return
	say "FAILED: $1, $2: '$said', not '$3'"
	rc=1
}
for order in cut crossed frozen resent; do
	for asks in r v w; do
		finds "$order" "$asks" "$ALL"
	done
	finds "$order" q '15 0123456789abcde, poll 1, 1 f'
done
finds cut p "$ALL"
finds frozen p "$ALL"
for order in cut frozen resent; do
	finds "$order" c '0 16'
done
exit $rc
