# A proxy between two hosts that keeps the addresses of both, in a network namespace of the
# server's host (tests/hostile/proxy.py): two TCP connections, of which each end sees the names of
# one. The two libraries can meet past it, with the right key, and no byte may. With nothing
# between the hosts, and after all that, the same ends take RDMA. On one host:
# tests/hostile/proxy.sh. And a proxy in a network namespace of the client's host, whose clock is
# the client's, so that its SYN looks like the client's.
# HOSTS: 2
# DEVICE: rxe
# TIMEOUT: 600
. "${TOP:?}/tests/vm/lib.sh"
both eval "printf '0123456789abcdef\n' >$TMP/key; chmod 600 $TMP/key"
both policy "use rdma both *:*
discovery_port 7471
key_file $TMP/key
earn_bytes 30K
earn_rounds 1000000
discovery 30s
log_level 3"
new_port port
proxy=tests/hostile/proxy.py

of() { on "$1" counters "$TMP/stat"; }
said() { grep -qs -- "$1" "$TMP/shim.log"; }

# scene HOW [TELLS]: until it is settled which way the connection goes, and then some. TELLS: what
# the client must have said
scene() {
	local settled='cut over' rdma_a rdma_b line
	[[ $1 == direct ]] || settled='cut over\|stays on TCP'
	rm -f "$TMP/shim.log" "$TMP/enough"
	on b rm -f "$TMP/shim.log"
	on b start server shim python3 -S -E "$proxy" server "$B4" "$port"
	on b wait_port "$port" || fail "no server"
	start client shim python3 -S -E "$proxy" client "$B4" "$port" "$1" "$TMP/enough"
	within 60 eval "said '$settled' || ended client" ||
		{ cat "$TMP/shim.log"; fail "$1: the search does not end"; }
	nap 3
	touch "$TMP/enough"
	finish client 60 || { cat "$TMP/shim.log"; fail "$1: $(output client)"; }
	on b stop server KILL || fail "$1: server"
	line=$(counters)
	rdma_a=$(counter rdma "$line")
	say "$1: $(output client); here $line"
	line=$(of b)
	rdma_b=$(counter rdma "$line")
	say "$1: there $line"
	if [[ $1 == direct ]]; then
		((rdma_a > 50000 && rdma_b > 50000)) ||
			{ cat "$TMP/shim.log"; fail "$1: hardly a byte by RDMA"; }
	else
		((rdma_a + rdma_b == 0)) && ! said 'cut over' ||
			{ cat "$TMP/shim.log"; fail "$1: bytes went past the proxy"; }
		said "${2:-got another SYN than ours}" ||
			{ cat "$TMP/shim.log"; fail "$1: it was not the SYN that told"; }
	fi
}

scene direct
on b start middle unshare -n sleep 100000
on b within 10 eval \
	'ns=$(readlink /proc/$(pid_of middle)/ns/net) &&
		[[ $ns != "$(readlink /proc/self/ns/net)" ]]' ||
	fail "no network namespace"
on b eval "tests/hostile/middle \$(pid_of middle) $port data" || fail "no network"
for how in same changed longer; do
	on b eval \
		"start proxy nsenter -t \$(pid_of middle) -n python3 -S -E $proxy proxy $port $how"
	on b within 20 eval \
		"[[ -n \$(nsenter -t \$(pid_of middle) -n ss -Hltn 'sport = :$port') ]]" ||
		fail "no proxy"
	scene "$how"
	on b stop proxy KILL || fail "proxy"
done
on b eval 'ip rule del pref 15; ip rule del pref 21'
scene direct

# On the client's host, with the same SYN clock.
start middle unshare -n sleep 100000
elsewhere() {
	local ns
	ns=$(readlink "/proc/$(pid_of middle)/ns/net") &&
		[[ $ns != "$(readlink /proc/self/ns/net)" ]]
}
within 10 elsewhere || fail "no network namespace here"
tests/hostile/middle "$(pid_of middle)" "$port" || fail "no network here"
ip rule add pref 16 iif data ipproto tcp sport "$port" lookup 100
# the client keeps its address
ip route replace default via 10.7.0.2 dev middle0 src "$A4" table 100
sysctl -q net.ipv4.conf.data.rp_filter=0
listens() { [[ -n $(nsenter -t "$(pid_of middle)" -n ss -Hltn "sport = :$port") ]]; }
for how in same changed same; do
	start proxy nsenter -t "$(pid_of middle)" -n python3 -S -E "$proxy" proxy "$port" "$how"
	within 20 listens || fail "no proxy here"
	scene "$how" 'got another SYN than ours\|another network namespace of this host'
	stop proxy KILL || fail "proxy"
done
for pref in 16 20 21; do ip rule del pref $pref; done
scene direct
