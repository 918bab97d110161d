#!/bin/bash
# A proxy that keeps addresses and ports, in another network namespace of the client's host, whose
# clock is the client's: is its connection taken for the client's own by the proof between hosts?
# The timestamp of the SYN cannot tell, and does not in most tries; the way to it does.
# With the programs and two hosts: tests/vm/rdma-proxy.sh. On one host: tests/hostile/proxy.sh.
# TIMEOUT: 100
. "$(dirname "$0")/../apps/lib.sh"
((EUID == 0)) || skip "not root"
[[ -z ${SAN-} ]] || skip "what is tested is the kernel's answers"
unshare -n ip link add x type veth peer name y 2>/dev/null ||
	skip "no network namespaces, or no veth"
here=$(cd "$(dirname "$0")" && pwd)
cp "$here/proxy.py" "$here/../apps/echo.py" "$TMP"
TIMES=50
port=20500

. "$here/netns.bash"
in_ends() { nsenter -t "$ends" -n "$@"; }

# The way to the proxy is a bridge, of which its network has a port.
by_bridge() {
	in_ends sh -ec 'ip link add br0 type bridge
		ip addr del 10.7.0.1/24 dev middle0
		ip link set middle0 master br0
		sysctl -q net.ipv4.conf.br0.rp_filter=0 net.ipv4.conf.br0.accept_local=1
		sysctl -q net.ipv4.conf.br0.send_redirects=0
		ip addr add 10.7.0.1/24 dev br0
		ip link set br0 up
		ip route replace default via 10.7.0.2 dev br0 table 100
		ip rule add pref 11 iif br0 lookup local'
}

# scene HOW: "ours N, leaves N, taken for one N" to $TMP/said
scene() {
	local ends mid
	MODE=$1
	place ends
	in_ends sh -c 'ip link set lo up && ip addr add 10.7.1.1/32 dev lo' || fail "no network"
	if [[ $1 != direct ]]; then
		place mid
		in_ends "$here/middle" "$mid" "$port" || fail "no network"
		[[ $1 != bridged ]] || by_bridge || fail "no bridge"
		start none "$TMP/proxy.log" nsenter -t "$mid" -n \
			python3 "$TMP/proxy.py" proxy "$port" same
		within 15 listens "$mid" || fail "no proxy"
	fi
	start none "$TMP/server.log" nsenter -t "$ends" -n \
		"$B/hostile/samesyn" server 10.7.1.1 "$port"
	within 15 listens "$ends" || fail "no server"
	nsenter -t "$ends" -n timeout 60 "$B/hostile/samesyn" client 10.7.1.1 "$port" $TIMES \
		>"$TMP/said" 2>&1 ||
		fail "client: $(cat "$TMP/said" "$TMP/server.log")"
	say "of $TIMES connections: $(cat "$TMP/said")"
}
scene direct
[[ $(<"$TMP/said") == "ours $TIMES, "* ]] || fail "its own SYN is not known"
for how in proxied bridged; do
	scene $how
	read -r _ ours _ _ _ _ _ both < <(tr -d , <"$TMP/said")
	((ours > 0)) || fail "the proxy's SYN is never the client's: this shows nothing"
	((both == 0)) || fail "two connections are taken for one"
done
exit 0
