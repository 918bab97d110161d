#!/bin/bash
# Two containers of podman, with its default seccomp profile, without capabilities, each with
# network, PID, mount and IPC namespaces of its own: redis and its benchmark, by NAT. They meet as
# in conf/docker/compose.yaml, by a volume with a directory and a key, are on shared memory, and
# twice as fast at least. The networks are this test's; the images are made of this machine's
# programs. As root; needs podman and runc.
# TIMEOUT: 120
. "$(dirname "$0")/../apps/lib.sh"
. "$(dirname "$0")/../hostile/netns.bash"
. "$(dirname "$0")/../hostile/across.bash"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
((EUID == 0)) || skip "containers without being root are not tried"
for c in podman runc redis-server redis-benchmark; do
	command -v $c >/dev/null || skip "no $c: apt-get install podman runc redis"
done
needs_networks
networks
. "$(dirname "$0")/podman.bash"

nettle=$(ldconfig -p | grep -om 1 '/.*/libnettle\.so\.[0-9]*$') ||
	skip "no libnettle, for the key"
image docker.io/library/redis:7 "$nettle" /bin/sh /bin/sleep /usr/bin/redis-server \
	/usr/bin/redis-benchmark "$SHIM=/usr/lib/librdmashim.so" "$B/rdmastat=/usr/bin/rdmastat"
V=$TMP/volume
install -d -m 755 "$V"
install -d -m 1770 -g 999 "$V/across"
install -d -o 999 -m 700 "$V/stat"
(umask 077 && head -c 32 /dev/urandom | base64 >"$V/key")
chown 999:999 "$V/key"
printf '%s\n' 'cross_ns_dir /rdmashim/across' 'key_file /rdmashim/key' 'use shm both *:*' \
	>"$V/rdmashim.conf"

# container NAME NAMESPACE PRELOAD COMMAND...
container() {
	local name=$1 ns=$2 preload=$3
	shift 3
	pod run -d --name "$name" --network "ns:/proc/$ns/ns/net" --user 999:999 --cap-drop all \
		--read-only -v "$V:/rdmashim" ${preload:+-e "LD_PRELOAD=$preload"} \
		-e RDMASHIM_CONF=/rdmashim/rdmashim.conf -e RDMASHIM_STAT_DIR=/rdmashim/stat \
		docker.io/library/redis:7 "$@" >"$TMP/$name.log" 2>&1 ||
		fail "$name: $(cat "$TMP/$name.log")"
}
port=6379
# run PRELOAD: requests per second of two figures
run() {
	container server "$N_B" "$1" redis-server --save "" --protected-mode no --bind 0.0.0.0 \
		--port 23001 --dir /tmp
	port=23001
	within 15 listens "$N_B" || fail "no redis: $(pod logs server 2>&1 | tail -n 3)"
	container client "$N_A" "$1" sh -c 'redis-benchmark -h 10.96.0.1 -p 23081 -q -n 200000 \
		-c 4 -t set,get; sleep 1000'
	figures() {
		pod logs client 2>/dev/null | tr '\r' '\n' | grep -oE \
			'(SET|GET): [0-9.]+ requests per second' >"$TMP/figures"
		(($(wc -l <"$TMP/figures") == 2))
	}
	within 60 figures || fail "no figures: $(pod logs client 2>&1 | tail -n 3)"
	if [[ -n $1 ]]; then
		pod exec client rdmastat --json >"$TMP/json" 2>"$TMP/err" ||
			fail "$(cat "$TMP/err")"
		python3 -S -E -c 'import json, sys
p = json.load(open(sys.argv[1]))["processes"]
sys.exit(not any(x["program"] == "redis-server" and x["bytes"]["shm"] > x["bytes"]["tcp"]
    for x in p))' "$TMP/json" || fail "not on shared memory: $(cat "$TMP/json")"
	fi
	say "${1:+with the library: }$(tr '\n' ' ' <"$TMP/figures")"
	pod rm -fa -t 0 >/dev/null 2>&1
}
gets() { sed -n 's/^GET: \([0-9]*\).*/\1/p' "$TMP/figures"; }
run ""
tcp=$(gets)
run /usr/lib/librdmashim.so
(($(gets) >= 2 * tcp)) || fail "less than twice as many"
exit 0
