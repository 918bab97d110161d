#!/bin/bash
# A network that takes everything and delivers nothing, while TCP's is well: streams that have
# little under way are on TCP again within 100 ms. A machine that is busy with other things may be
# late, so the best of some times counts: the wait for a path that delivers nothing is in each of
# them. None takes a second.
. "$(dirname "$0")/lib.sh"
library 'earn_bytes 0'
device profile=mlx5
echoes
best=1000
for _ in {1..20}; do
	back_on_rdma
	ctl down a
	turns 20
	ctl up a
	ms=$(longest)
	say "after $ms ms"
	((${ms%.*} < 1000)) || fail "$ms ms until bytes move again: $(tail -n 20 "$TMP/log")"
	((${ms%.*} > best)) || best=${ms%.*}
	((best > 100)) || break
done
((best <= 100)) || fail "never within 100 ms: $best ms"

# Nobody has anything under way: the device itself says so.
dead() { (($(grep -c 'path is dead' "$TMP/log") > $1)); }
for cmd in "fail b" "down a"; do
	back_on_rdma
	n=$(grep -c 'path is dead' "$TMP/log")
	# shellcheck disable=SC2086
	ctl $cmd
	within 10 dead "$n" || fail "$cmd: nobody hears of it"
	say "$cmd: heard of"
	ctl up a
done
exit 0
