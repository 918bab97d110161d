#!/bin/bash
# TIMEOUT: 600
# A path more (mailbox.c, mailbox.def), asked for by its word: every snippet cut over at once, and
# cut and rewound every 1 to 3 ms, prints what it does on the kernel alone; it was that path, and
# rdmastat shows a column of it.
# Differences that lie in such a path: known.txt.
. "$(dirname "$0")/../apps/lib.sh"
[[ -e ${SHIM:-} ]] || skip "no library to test"
[[ -z ${SAN-} ]] || skip "the snippets are run with the sanitizer by snippets/run"
lib=${PATH_LIB-$B/path/librdmashim.so}	# another one shows that this test can fail
stat=$B/path/rdmastat

mkdir -m 700 "$TMP/stat"
RULES='use mailbox both *:*'
printf 'earn_bytes 0\nearn_rounds 0\nlog_level 2\n%s\n' "$RULES" >"$TMP/conf"
: >"$TMP/log"
LD_PRELOAD=$lib RDMASHIM_CONF=$TMP/conf RDMASHIM_STAT_DIR=$TMP/stat RDMASHIM_LOG_FILE=$TMP/log \
	timeout 60 "$B/bench/hot" 5000 64 || fail "hot: status $?"
sent=$(sed -n 's/.*mailbox: \([0-9]*\) records.*/\1/p' "$TMP/log" | sort -n | tail -1)
((${sent:-0} > 2000)) || fail "of 5000 messages ${sent:-no} records were sent by the mailbox"

"$stat" policy check "$TMP/conf" >"$TMP/out" 2>&1 || fail "its word in a rule: $(cat "$TMP/out")"
RDMASHIM_STAT_DIR=$TMP/stat "$stat" --all --json >"$TMP/out"
python3 -S -E - "$TMP/out" <<'END' || fail "rdmastat: $(cat "$TMP/out")"
import json, sys
b = json.load(open(sys.argv[1]))["total"]["bytes"]
sys.exit(not (b["mailbox"] > 2000 * 64 and b["shm"] == 0))
END
grep -q '^mailbox .* a mailbox' <<<"$("$stat" -o help)" || fail "rdmastat has no column for it"

# A process that ends by itself takes its streams back to TCP first, and its last word may not be
# read yet when its end is seen: that is no reset. Three at once, so that some are late.
printf 'earn_bytes 0\nearn_rounds 0\nforce_cut_every 1500us\n%s\n' "$RULES" >"$TMP/conf"
for i in 1 2 3; do
	LD_PRELOAD=$lib RDMASHIM_CONF=$TMP/conf RDMASHIM_STAT_DIR=$TMP/stat SNIP_WAIT_CUT=1 \
		SNIP_JITTER=1000 timeout 120 "$B/path/snippets/process" -n 100 peer_process \
		>"$TMP/ends.$i" 2>&1 &
	PIDS+=($!)
done
wait "${PIDS[@]}"
ends=$(cat "$TMP"/ends.? | grep -c '^peer_process: end = 0$')
((ends == 300)) || fail "of 300 processes that ended $ends did so cleanly: $(grep -h 'end = ' \
	"$TMP"/ends.? | sort | uniq -c | tr '\n' ' ')"

SHIM=$lib RULES=$RULES SNIPPETS=$B/path/snippets \
	WANTED="cut forced" ROUNDS=1 KNOWN=$TOP/tests/path/known.txt \
	"$TOP/tests/snippets/run.sh" || fail "snippets: see above"
