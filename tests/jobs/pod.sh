#!/bin/bash
# The sample of conf/kubernetes as a pod, by `podman play kube`: the initContainer hands the
# library on, two containers of one network meet in a shared volume (discovery_dir) and are on
# shared memory, and the third sees the counters of both. The images are made of this machine's
# programs, so no registry is needed; what podman stores is private to this test. podman is no
# Kubernetes: what it does not read of the file (the port, the size limit) is not tried here. As
# root; needs podman and runc.
# TIMEOUT: 120
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
((EUID == 0)) || skip "a pod without being root is not tried"
for c in podman runc redis-server; do
	command -v $c >/dev/null || skip "no $c: apt-get install podman runc"
done
POD=$TOP/conf/kubernetes/pod.yaml

. "$(dirname "$0")/podman.bash"

image registry.example/rdmashim:0.2 /bin/sh /usr/bin/install \
	"$SHIM=/usr/lib/x86_64-linux-gnu/librdmashim.so" "$B/rdmastat=/usr/bin/rdmastat"
image docker.io/library/redis:7 /bin/sh /bin/sleep /usr/bin/redis-server /usr/bin/redis-benchmark
# Never: podman would start the initContainer again and again with the others.
# Ports cannot be published without a network of podman's.
sed -e '/^spec:$/a\  restartPolicy: Never' -e '/^ *ports:$/,+1d' "$POD" >"$TMP/pod.yaml"
pod play kube --network none "$TMP/pod.yaml" >"$TMP/play.log" 2>&1 ||
	fail "play kube: $(cat "$TMP/play.log")"
in_pod() { pod exec "rdmashim-example-$1" "${@:2}" 2>"$TMP/err"; }

fast() { in_pod rdmastat rdmastat --json >"$TMP/json" && python3 -S -E -c 'import json, sys
p = json.load(open(sys.argv[1]))["processes"]
sys.exit(not any((x["program"], x["uid"]) == ("redis-server", 1000)
    and x["bytes"]["shm"] > x["bytes"]["tcp"] for x in p))' "$TMP/json"; }
within 15 fast ||
	fail "not on shared memory:" \
	"$(cat "$TMP/err" "$TMP/json"; pod ps -a; pod logs rdmashim-example-server 2>&1 |
	tail -n 3)"
in_pod rdmastat rdmastat
metrics() {
	nsenter -t "$(pod inspect -f '{{.State.Pid}}' rdmashim-example-rdmastat 2>/dev/null)" \
		-n curl -sf http://127.0.0.1:9101/metrics >"$TMP/metrics"
}
within 10 metrics || fail "nobody answers on the port for Prometheus"
grep -q '^rdmashim_bytes_total{.*program="redis-server".*path="shm".*} [1-9]' "$TMP/metrics" ||
	fail "$(head -n 30 "$TMP/metrics")"
pod logs rdmashim-example-client 2>/dev/null | tr '\r' '\n' | grep -m 1 'requests per second' ||
	fail "no figure from the client"
exit 0
