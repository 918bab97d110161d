# redis over RDMA: a value of 3 MB and 2,000 keys come back as they went, benchmarks with many
# connections end without error, a background save (fork) in between, both ends have moved bytes
# by RDMA; and kill -9 of the server gives errors, not silence.
# HOSTS: 2
# DEVICE: rxe
# TIMEOUT: 240
. "${TOP:?}/tests/vm/lib.sh"
printf '0123456789abcdef0123\n' | tee "$TMP"/key >/dev/null
on "$PEER" eval "printf '0123456789abcdef0123\n' >$TMP/key; chmod 600 $TMP/key"
chmod 600 "$TMP"/key
rules="use rdma both *:*
discovery_port 7471
key_file $TMP/key
earn_bytes 0
discovery 10s
log_level ${LEVEL:-2}"
on "$PEER" policy "$rules"
policy "$rules"
head -c 3000000 /dev/urandom >"$TMP"/big
awk 'BEGIN { for (i = 0; i < 2000; i++) { s = ""; for (k = 0; k < 8;
	k++) s = s (i * 7919 + k * 104729); print "SET key:" i " " s } }' >"$TMP"/load

new_port port
on "$PEER" start srv shim redis-server --port "$port" --bind "$P4" --save "" --dir /tmp \
	--protected-mode no
on "$PEER" wait_port "$port" || fail "redis-server does not listen"
cli() { shim redis-cli -h "$P4" -p "$port" "$@" 2>&1; }
grep -q 'errors: 0, replies: 2000' <<<"$(cli --pipe <"$TMP"/load)" || fail "pipe"
cli -x set big <"$TMP"/big >/dev/null
[[ $(shim redis-cli -h "$P4" -p "$port" --raw get big | head -c 3000000 |
	sha256sum) == "$(sha256sum <"$TMP"/big)" ]] || fail "the big value came back changed"
shim redis-benchmark -h "$P4" -p "$port" -t set,get -d 2000 -n 4000 -c 10 -P 4 \
	-q --csv >"$TMP"/bench1 2>&1 || fail "$(cat "$TMP"/bench1)"
cli bgsave
shim redis-benchmark -h "$P4" -p "$port" -t set,get,lpush -n 2000 -c 5 -q --csv >"$TMP"/bench2 \
	2>&1 || fail "$(cat "$TMP"/bench2)"
grep -hi error "$TMP"/bench? && fail "errors"
cat "$TMP"/bench?
[[ $(cli get key:777) == *$((777 * 7919))* ]] || fail "key:777"
line=$(counters)
say "clients: $line"
[[ $(counter rdma "$line") -gt 1000000 ]] ||
	{ cat "$TMP"/shim.log; fail "hardly anything went by RDMA"; }
line=$(on "$PEER" counters)
say "server: $line"
[[ $(counter rdma "$line") -gt 1000000 ]] || fail "server: hardly anything went by RDMA"

start load shim redis-benchmark -h "$P4" -p "$port" -t set -d 500 -n 100000000 -c 4 -q
nap 3
on "$PEER" stop srv KILL
within 20 ended load || fail "the client does not notice that the server was killed"
