#!/bin/bash
# middle.sh PID PORT [DEVICE]: in this network namespace, sends what goes to or comes from TCP port PORT of this host's addresses through
# the network namespace of process PID, where everything of that port is local, whomever it is for (proxy.py). Both ends keep
# their addresses. DEVICE: where clients of other hosts come from; without it the client is here, too. Needs root.
set -e
pid=$1 port=$2 device=${3-}
in_middle() { nsenter -t "$pid" -n "$@"; }

ip link set lo up
ip link add middle0 type veth peer name middle1
ip link set middle1 netns "$pid"
ip addr add 10.7.0.1/24 dev middle0
ip link set middle0 up
for d in all middle0 $device; do
	sysctl -q "net.ipv4.conf.$d.rp_filter=0" "net.ipv4.conf.$d.accept_local=1" "net.ipv4.conf.$d.send_redirects=0"
done
# What is to be forwarded looks like a packet for the server's socket, and would be dropped for that.
sysctl -q net.ipv4.ip_forward=1 net.ipv4.ip_early_demux=0
ip route add default via 10.7.0.2 dev middle0 table 100
ip rule add pref 10 iif middle0 lookup local
if [[ -n $device ]]; then
	ip rule add pref 15 iif "$device" ipproto tcp dport "$port" lookup 100
else
	ip rule add pref 20 iif lo ipproto tcp dport "$port" lookup 100
fi
ip rule add pref 21 iif lo ipproto tcp sport "$port" lookup 100
ip rule add pref 30 lookup local
ip rule del pref 0

in_middle ip link set lo up
in_middle ip addr add 10.7.0.2/24 dev middle1
in_middle ip link set middle1 up
in_middle sysctl -q net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.middle1.rp_filter=0
in_middle ip route add default via 10.7.0.1
in_middle ip route add local default dev lo table 200
in_middle ip rule add pref 10 iif middle1 lookup 200
