#!/bin/bash
# memcached (two worker threads, libevent) with a client of its own text protocol: many keys, big
# values, pipelined gets. Its memory is locked (-k: mlockall(2) of all that is to come), which
# must not be that of the library's shared memory: gigabytes of address space.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
command -v memcached >/dev/null || skip "no memcached"

cat >"$TMP/client.py" <<'END'
import hashlib, socket, sys, threading
port, sums, bad = int(sys.argv[1]), {}, []

def value(i):
    seed = hashlib.sha256(b"%d" % i).digest()
    return seed * (1 + i * 37 % 30) if i % 50 else seed * 20000

def run(me):
    s = socket.create_connection(("127.0.0.1", port))
    f = s.makefile("rwb")
    h = hashlib.sha256()
    for i in range(me * 300, me * 300 + 300):
        v = value(i)
        f.write(b"set k%d 0 0 %d\r\n%s\r\n" % (i, len(v), v))
        f.flush()
        if f.readline() != b"STORED\r\n":
            bad.append("set %d" % i)
    for _ in range(4):
        for first in range(me * 300, me * 300 + 300, 10):
            f.write(b"get %s\r\n" % b" ".join(b"k%d" % i for i in range(first, first + 10)))
            f.flush()
            while True:
                line = f.readline()
                if line == b"END\r\n":
                    break
                _, key, _, n = line.split()
                v = f.read(int(n))
                f.readline()
                if v != value(int(key[1:])):
                    bad.append("wrong value of %s" % key)
                h.update(v)
    sums[me] = h.hexdigest()
    s.close()

threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sorted(sums.items()), bad)
sys.exit(bool(bad) or len(sums) != 4)
END

job() {
	local port
	free_port port
	server memcached -u root -l 127.0.0.1 -p "$port" -t 2 -m 256 "${LOCKED[@]}"
	wait_port "$port"
	client timeout 40 python3 "$TMP/client.py" "$port" >>"$OUT" 2>"$TMP/client.log" ||
		fail "client: $(cat "$TMP/client.log" "$OUT")"
	locked[$MODE]=$(awk '/^VmLck/ { print $2 }' "/proc/$SRV/status")
	stop "$SRV"
}
declare -A locked=()
LOCKED=()
((EUID)) || LOCKED=(-k)
for_modes job 1000000 || exit 1
((EUID)) && exit 0
((locked[bare] > 1000)) || { say "it may not lock memory here"; exit 0; }
for mode in "${!locked[@]}"; do
	say "$mode: ${locked[$mode]} kB are locked"
	((locked[$mode] < locked[bare] + 32768)) ||
		fail "$mode: ${locked[$mode]} kB are locked, ${locked[bare]} without the library"
done
