# across.bash - three network namespaces behind a router's bridge, with NAT: what containers of one
# host have. Sourced after apps/lib.sh and netns.bash.
# shellcheck shell=bash

# in_net PLACE CMD...: in its network; the rest is this test's
in_net() { local p=$1; shift; nsenter -t "$p" -n "$@"; }

# networks: the router N_R with the bridge, and behind it N_A, N_B and N_C, 10.77.0.2 to 4 and
# fd77::2 to 4. 10.96.0.1:23080 is B, 23081 B with another source address, 23082 A (a hairpin),
# 23084 of R's own address a published port of B; [fd96::1]:23080 is B.
networks() {
	local n i=2
	place N_R
	in_net "$N_R" sh -c 'ip link set lo up && ip link add br0 type bridge &&
		ip addr add 10.77.0.1/24 dev br0 && ip -6 addr add fd77::1/64 dev br0 nodad &&
		ip link set br0 up promisc on && sysctl -qw net.ipv4.ip_forward=1 \
		net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.send_redirects=0 \
		net.ipv4.conf.br0.send_redirects=0' || skip "no bridge to be had"
	for n in N_A N_B N_C; do
		place "$n"
		in_net "$N_R" ip link add "v${n#N_}" type veth peer name eth0 netns "${!n}" ||
			skip "no veth to be had"
		in_net "$N_R" ip link set "v${n#N_}" master br0 up
		in_net "$N_R" ip link set "v${n#N_}" type bridge_slave hairpin on
		in_net "${!n}" sh -c "ip link set lo up &&
			ip addr add 10.77.0.$i/24 dev eth0 &&
			ip -6 addr add fd77::$i/64 dev eth0 nodad && ip link set eth0 up &&
			ip route add default via 10.77.0.1 &&
			ip -6 route add default via fd77::1" ||
			fail "no network"
		i=$((i + 1))
	done
	in_net "$N_R" nft -f - <<-'N' || skip "no NAT to be had"
	table ip nat {
	 chain pre { type nat hook prerouting priority -100;
	  ip daddr 10.96.0.1 tcp dport 23080 dnat to 10.77.0.3:23001
	  ip daddr 10.96.0.1 tcp dport 23081 meta mark set 0x4000 dnat to 10.77.0.3:23001
	  ip daddr 10.96.0.1 tcp dport 23082 meta mark set 0x4000 dnat to 10.77.0.2:23001
	 }
	 chain out { type nat hook output priority -100;
	  ip daddr 10.77.0.1 tcp dport 23084 dnat to 10.77.0.3:23001
	 }
	 chain post { type nat hook postrouting priority 100;
	  meta mark 0x4000 masquerade fully-random
	 }
	}
	table ip6 nat {
	 chain pre { type nat hook prerouting priority -100;
	  ip6 daddr fd96::1 tcp dport 23080 dnat to [fd77::3]:23001
	 }
	}
	N
}

# across LINE...: the policy of both ends, with a directory and a key
across() {
	local line
	DIR=$TMP/across.d
	[[ -d $DIR ]] || { mkdir "$DIR" && chmod 1770 "$DIR"; }
	[[ -e $TMP/key ]] || (umask 077 && head -c 32 /dev/urandom | base64 >"$TMP/key")
	policy "cross_ns_dir $DIR" "key_file $TMP/key" 'log_level 4' "$@"
}
# networks_for FILE...: networks, and the programs of the test, with what they share, in $TMP, where
# they are to be seen from all of them
networks_for() {
	needs_networks
	networks
	cp "$@" "$TOP/tests/apps/echo.py" "$TMP"
	port=23001
}
# serves ROLE CMD...: in B, on $port; $server is its process
serves() {
	start "$1" "$TMP/server.log" nsenter -t "$N_B" -n "${@:2}"
	server=$PID
	within 15 listens "$N_B" || fail "nobody listens: $(cat "$TMP/server.log")"
}
needs_networks() {
	[[ -n $SHIM ]] || skip "no library"
	((EUID == 0)) || skip "not root"
	command -v nft >/dev/null || skip "no nft"
	unshare -n ip link add x type veth peer name y 2>/dev/null ||
		skip "no network namespaces, or no veth"
}
