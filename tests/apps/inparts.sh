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
	said=$(timeout 60 "$B/apps/inparts" "$1" ${2:+"$2"} 2>&1)
	[[ $said == "$3" ]] && return
	say "FAILED: $1${2:+, $2}: '$said', not '$3'"
	rc=1
}
for order in cut crossed frozen resent late; do
	for asks in r v w; do
		finds "$order" "$asks" "$ALL"
	done
	finds "$order" q '15 0123456789abcde, poll 1, 1 f'
done
for order in cut crossed frozen; do
	finds "$order" p "$ALL"
done
for order in cut crossed frozen resent late; do
	finds "$order" c '0 16'
	finds "$order" k "$ALL"
done
# What was told is kept, however long it takes; then the slot is given back.
finds left '' "0 16, left 0, 0 16, $ALL, left 1"
exit $rc
