#!/bin/bash
# TIMEOUT: 240
# 64 hosts that send to one and read from it, a process and a node each, and it has two. Every byte
# is right, all go by RDMA and none is left behind; then a host dies, one of its own and one with
# its network, and the others go on. It says how even they are and how long one stood still: on a
# machine of few processors that is the machine's doing, and so is a device that is late
# (rdma_stall).
. "$(dirname "$0")/lib.sh"
library 'earn_bytes 0' 'rdma_stall 1s'
HOSTS=${HOSTS:-64}
P=$B/apps/pattern
options=(-w block -d both -n 1000000000000 -s 8000 -z 20)
device profile=mlx5

servers=() clients=()
for k in 0 1; do
	free_port PORT
	ports[k]=$PORT
	preloaded a "$P" listen "${options[@]}" -k $(((HOSTS + k) / 2)) "$PORT" \
		>"$TMP/server$k" 2>&1 &
	servers+=($!)
	PIDS+=($!)
	within 30 listening "$PORT" || fail "server: $(cat "$TMP/server$k")"
done
mkdir "$TMP/bytes"
for ((i = 0; i < HOSTS; i++)); do
	SIMNIC_NODE=n$i LD_LIBRARY_PATH=$NIC LD_PRELOAD=$PRELOAD "$P" connect "${options[@]}" \
		-p "$TMP/bytes/$i" -r 20 127.0.0.1 "${ports[(i + 1) % 2]}" >"$TMP/client.$i" 2>&1 &
	clients+=($!)
	PIDS+=($!)
	disown
done
all_up() { (($(paths_up) >= 2 * HOSTS)); }
within 90 all_up || fail "$(paths_up) ends of paths of $((2 * HOSTS)): $(tail -n 5 "$TMP/log")"

# watch SECONDS [HOST...]: all but these receive meanwhile, and how evenly.
watch() {
	timeout 100 python3 -S - "$TMP/bytes" "$HOSTS" "$@" <<'END' || fail "some hosts stand still"
import struct
import sys
import time

folder, hosts, secs = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
alive = sorted(set(range(hosts)) - set(map(int, sys.argv[4:])))


def figures():
    return {i: struct.unpack("2Q", open(f"{folder}/{i}", "rb").read(16))[1] for i in alive}


first = last = figures()
start = time.monotonic()
moved = dict.fromkeys(alive, start)
longest = 0
while (now := time.monotonic()) < start + secs or any(last[i] == first[i] for i in alive):
    if now > start + 60:
        sys.exit(f"hosts {[i for i in alive if last[i] == first[i]]} have received nothing")
    time.sleep(0.01)
    next_ = figures()
    for i in alive:
        if next_[i] != last[i]:
            longest = max(longest, now - moved[i])
            moved[i] = now
    last = next_
got = sorted(last[i] - first[i] for i in alive)
print(f"{len(alive)} hosts: fastest/slowest {got[-1] / got[0]:.2f}, "
      f"longest stall {1000 * longest:.0f} ms")
END
}

watch 3
bytes=$(by_rdma)
watch 1
rdma_moves "$bytes" || fail "nothing goes by RDMA"
ctl down n7
kill -KILL "${clients[7]}"
watch 3 7
kill -KILL "${clients[8]}"
watch 3 7 8
kill -KILL "${clients[@]}" 2>/dev/null
for k in 0 1; do
	wait "${servers[k]}"
	rc=$?
	((rc == 3)) || fail "server after the clients' death: status $rc, $(cat "$TMP/server$k")"
done
exit 0
