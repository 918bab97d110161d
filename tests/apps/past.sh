#!/bin/bash
# Bytes that a program writes past the library (by libc's own function, out of libc's handle) while
# the connection is on TCP: they come through, are counted, and the connection stays there for good.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
cat >"$TMP/past.py" <<'END'
import ctypes, json, os, socket, subprocess, sys, time
conf, rdmastat = sys.argv[1:]
earn = "earn_bytes 0\nearn_rounds 0\n"
write = ctypes.CDLL("libc.so.6").write	# found in libc, not by the name that is preloaded

def conns():
    bare = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    out = subprocess.run([rdmastat, "conn", "--json", "--all"], env=bare, stdout=subprocess.PIPE)
    return json.loads(out.stdout)["connections"]

def until(what, cond):
    end = time.monotonic() + 20
    while not cond(conns()):
        if time.monotonic() > end:
            sys.exit(f"not {what}: {conns()}")
        rounds(20)

def policy(text):
    with open(conf + ".new", "w") as f:
        f.write(text)
    os.rename(conf + ".new", conf)

l = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(l.getsockname())
a = l.accept()[0]

def rounds(n):
    for i in range(n):
        c.sendall(b"%05d" % i)
        if a.recv(5, socket.MSG_WAITALL) != b"%05d" % i:
            sys.exit("other bytes")
        a.sendall(b"x")
        if c.recv(1) != b"x":
            sys.exit("other bytes")

def path(p):
    return lambda got: len(got) == 2 and all(x["tx_path"] == x["rx_path"] == p for x in got)

until("on shared memory", path("shm"))
policy(earn + "mode off\n")
until("on TCP", path("tcp"))
if write(c.fileno(), b"0123456789", 10) != 10 or a.recv(10, socket.MSG_WAITALL) != b"0123456789":
    sys.exit("other bytes")
policy(earn)
until("seen", lambda got: any(x["reason"] == "bypass" for x in got))
rounds(2000)
print("the bytes came through")
END
MODE=both
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
out=$(run_with shim python3 "$TMP/past.py" "$CONF" "$TMP/rdmastat" 2>&1) || fail "$out"
[[ $out == "the bytes came through" ]] || fail "$out"
n=$(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json --all |
	grep -o '"bytes_past": *[0-9]*' | sort -u)
say "$out; $n"
[[ ${n##*[: ]} == 10 ]] || fail "counted: $n"
