# One connection is cut over to RDMA, bytes are right in both directions, and every path of the
# way is counted. Then five are, and rdmastat qp of both ends shows one queue pair, the numbers
# and GIDs of one being those of the other, the other way round.
# HOSTS: 1 2
# DEVICE: rxe siw
# EXCEPT: 2.siw
# TIMEOUT: 400
. "${TOP:?}/tests/vm/lib.sh"

rules="use rdma both *:*
discovery_port 7471
rdma_networks $A4/32 $B4/32
earn_bytes 0
discovery 60s
log_level ${LEVEL:-3}"
on "$PEER" policy "$rules"
policy "$rules"

mkdir -m 700 "$TMP"/own	# the client's counters

# by_rdma FIGURE: how long a link takes is the machine's business, so each run of the client is
# twice as long until one has seen it. All bytes of all runs must be right.
by_rdma() {
	local port secs line
	new_port port
	on "$PEER" start "srv$port" shim sockbench -s "$port" -n 100
	on "$PEER" wait_port "$port" || fail "server does not listen"
	for secs in 0.4 0.8 1.6 3.2 6.4 12.8 25.6 51.2; do
		rm -f "$TMP"/shim.log
		timeout 200 env "${SHIM_ENV[@]}" RDMASHIM_STAT_DIR="$TMP"/own sockbench -c "$P4" \
			"$port" -v -t $secs -f "$1" || fail "client: $1"
		line=$(counters "$TMP"/own)
		say "$1, $secs s: client: $line"
		(($(counter rdma "$line") > 10000)) && break
	done
	cat "$TMP"/shim.log
	(($(counter rdma "$line") > 10000)) ||
		{ on "$PEER" cat "$TMP"/shim.log; fail "$1: hardly anything went by RDMA"; }
	on "$PEER" stop "srv$port" KILL || fail "server"
}
by_rdma rtt_64
by_rdma stream_65536

CONNS=5
qp() { RDMASHIM_STAT_DIR=$1 rdmastat --json qp; }
# both_qp: one document per line, the client's first, what each end shows of queue pairs that are
# up and carry something.
both_qp() { { qp "$TMP/own" && on "$PEER" env RDMASHIM_STAT_DIR="$TMP/stat" rdmastat --json qp; } |
	python3 -c '
import json, sys
text, at, out = sys.stdin.read(), 0, []
while text[at:].strip():
	j, end = json.JSONDecoder().raw_decode(text[at:].lstrip())
	at = len(text) - len(text[at:].lstrip()) + end
	out.append([q for q in j["queue_pairs"] if q["state"] == "up" and q["streams"]])
print("\n".join(map(json.dumps, out)))'; }
all_there() {
	both_qp >"$TMP/qps" && [[ $(grep -c '"streams": '$CONNS'[,}]' "$TMP/qps") == 2 ]] &&
		! grep -q '"rtt_ns": null' "$TMP/qps"
}

new_port port
on "$PEER" start echo shim env IDLE_ADDR="$P4" idle server epoll "$port"
on "$PEER" wait_port "$port" || fail "server does not listen"
rm -f "$TMP"/own/*
mkfifo "$TMP/commands"
start cli shim env RDMASHIM_STAT_DIR="$TMP/own" IDLE_ADDR="$P4" idle client epoll "$port" $CONNS \
	"$TMP/commands"
exec {commands}>"$TMP/commands"
echo "run 100" >&$commands
within 120 eval 'ended cli || all_there' && ! ended cli ||
	fail "not $CONNS streams on one queue pair: $(cat "$TMP/qps") $(output cli)"
cat "$TMP/qps"
python3 - "$TMP/qps" "$DEVICE" "$A4" "$P4" <<'EOF' || fail "rdmastat qp"
import json, sys
file, device, here, there = sys.argv[1:]
(c,), (s,) = map(json.loads, open(file))
for q, mine, peers in (c, here, there), (s, there, here):
    assert q["device"] == device + "0" and q["port"] == 1 and q["qpn"], q
    assert q["kind"] == ("roce" if device == "rxe" else "iwarp"), q
    assert q["address"].split(":")[0] == mine and q["peer_address"].split(":")[0] == peers, q
    assert q["gid"] == (f"::ffff:{mine}" if device == "rxe" else None), q
    assert q["peer_gid"] == (f"::ffff:{peers}" if device == "rxe" else None), q
    assert 0 < q["rtt_ns"] < 10_000_000_000, q
assert c["address"] == s["peer_address"] and c["peer_address"] == s["address"]
assert c["pid"] != s["pid"] or here != there
if device == "rxe":
    assert c["peer_qpn"] == s["qpn"] and s["peer_qpn"] == c["qpn"] and c["mtu"] == s["mtu"], (c, s)
    if here == there:
        assert c["qpn"] != s["qpn"]
else:
    assert c["peer_qpn"] is None and s["peer_qpn"] is None
EOF
RDMASHIM_STAT_DIR=$TMP/own rdmastat dev | tee "$TMP/dev"
grep -Eq "^${DEVICE}0 .* 1 +$CONNS *\$" "$TMP/dev" ||
	fail "rdmastat dev does not show one link and $CONNS streams"
echo quit >&$commands
finish cli 60 || fail "client: $(output cli)"
on "$PEER" stop echo KILL
