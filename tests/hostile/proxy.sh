#!/bin/bash
# A proxy between two programs of one host that keeps the addresses of both, in another network
# namespace: the kernel has two connections, and each end, with all that sock_diag says of it,
# looks like the other's. No byte may go past the proxy. The same ends with nothing between them
# take the fast path. Between hosts: tests/vm/rdma-proxy.sh.
#	proxy.sh [HOW...]
# TIMEOUT: 120
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
((EUID == 0)) || skip "not root"
[[ -z ${SAN-} ]] || skip "Python under a sanitizer is slow, and what is tested is the kernel's" \
	"answers"
unshare -n ip link add x type veth peer name y 2>/dev/null ||
	skip "no network namespaces, or no veth"
here=$(cd "$(dirname "$0")" && pwd)
cp "$here/proxy.py" "$here/../apps/echo.py" "$TMP"

. "$here/netns.bash"

# scene HOW fast|proxied: HOW of proxy.py, or direct
scene() {
	local ends mid got fast
	begin_mode "$1"
	# Not at once: the other end is not there before the proxy has connected, too.
	policy 'earn_bytes 30K' 'earn_rounds 1000000' 'discovery 300ms' 'log_level 3'
	port=20500
	place ends
	nsenter -t "$ends" -n sh -c 'ip link set lo up && ip addr add 10.7.1.1/32 dev lo' ||
		fail "no network"
	if [[ $1 != direct ]]; then
		place mid
		nsenter -t "$ends" -n "$here/middle" "$mid" "$port" || fail "no network"
		start none "$TMP/proxy.log" nsenter -t "$mid" -n python3 "$TMP/proxy.py" proxy \
			"$port" "$1"
		within 15 listens "$mid" || fail "no proxy"
	fi
	start shim "$TMP/server.log" nsenter -t "$ends" -n python3 "$TMP/proxy.py" server 10.7.1.1 \
		"$port"
	local server=$PID
	within 15 listens "$ends" || fail "no server"
	start shim "$TMP/client.log" nsenter -t "$ends" -n python3 "$TMP/proxy.py" client 10.7.1.1 \
		"$port" "$1" "$TMP/enough.$1"
	within 15 grep -qs -e 'cut over' -e 'stays on TCP' "$TMP/shim.$1" ||
		fail "no end of the search"
	sleep 1
	touch "$TMP/enough.$1"
	finish "$PID" 15 || fail "client: $(cat "$TMP/client.log")"
	kill -KILL "$server"
	wait "$server" 2>/dev/null
	collect
	say "$(cat "$TMP/client.log"), $FAST bytes on a fast path, on TCP because: $REASONS"
	if [[ $2 == fast ]]; then
		((FAST > 100000)) || fail "nothing on the fast path"
	else
		((FAST == 0)) || fail "bytes went past the proxy"
		[[ $REASONS == *$2:* ]] || fail "no reason $2"
	fi
}

(($#)) || set -- direct same changed longer late
for how; do
	scene "$how" "$([[ $how == direct ]] && echo fast || echo proxied)"
done
exit 0
