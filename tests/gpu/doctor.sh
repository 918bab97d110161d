#!/bin/bash
# rdmastat doctor on the hooks of the CUDA driver, with the stand-in for it: all ways proved and
# copies fired through them; one that another library takes first is named; a device that cannot
# be used; no driver, no word.
# TIMEOUT: 100
. "$(dirname "$0")/lib.sh"
begin_mode both
unset RDMASHIM LD_PRELOAD
export RDMASHIM_STAT_DIR=$STAT RDMASHIM_CONF=$CONF COLUMNS='' TMPDIR=$TMP/tmp
mkdir "$TMPDIR"
doctor() { "$TMP/rdmastat" doctor --lib "$SHIM" >"$TMP/text" 2>&1; }
says() { grep -Eq -- "$1" "$TMP/text" || fail "no line '$1' in: $(cat "$TMP/text")"; }

policy 'device eager'
doctor
says '^ok   gpu hooks +all [0-9]+ ways .*: copies and launches [1-9][0-9]*, '\
'other writers [1-9][0-9]*, readers [1-9][0-9]*, waiters [1-9]'
says '^ok   gpu copies +35 on device 0 through the hooks, every byte compared'
says '^(ok   GPU path +possible here, and on by the policy|'\
'none GPU path +not possible here: .*userfaultfd)'
policy 'device off'
doctor
says '^(ok   GPU path +possible here; off by the policy|none GPU path)'
[[ -z $(ls "$TMPDIR") ]] || fail "it left something behind: $(ls "$TMPDIR")"

# another library before ours: the symbol is its, and so is what dlsym() finds
echo 'int cuMemcpyDtoH_v2(void *d, unsigned long long s, unsigned long n) { return 1; }' |
	gcc -shared -fPIC -w -x c - -o "$TMP/other.so" || fail "gcc"
LD_PRELOAD=$TMP/other.so "$TMP/rdmastat" doctor --lib "$SHIM" >"$TMP/text" 2>&1
(($? == 4)) || fail "no failure: $(cat "$TMP/text")"
says '^FAIL gpu hooks +[0-9]+ of [0-9]+ ways .*; not cuMemcpyDtoH_v2 as a symbol: no GPU path'
says '^ +-> another preloaded library hooks it too: load librdmashim.so first'
says '^(FAIL|none) GPU path +not possible here: '\
'not every way to the CUDA driver leads through the hooks'
says '^FAIL gpu copies +[0-9]+ of 35 .*; not cuMemcpyDtoH'

STANDIN_MEM=1000 doctor
(($? == 4)) || fail "no failure: $(cat "$TMP/text")"
says '^FAIL gpu copies +.*device 0 cannot be used: CUDA error'

LD_LIBRARY_PATH='' doctor
grep -q ' gpu hooks\| gpu copies\| GPU path' "$TMP/text" &&
	[[ ! -e /proc/driver/nvidia/version ]] && fail "$(cat "$TMP/text")"
exit 0
