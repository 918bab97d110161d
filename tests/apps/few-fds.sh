#!/bin/bash
# Programs that need no more descriptors and say so (RLIMIT_NOFILE below those they have, as
# sandboxes do) go on: their blocking calls wait, with and without a timeout, for what comes by
# the ring and for what comes by TCP. And a server that is at its limit when somebody wants to
# meet it stays on TCP, and says why.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the library needs the sanitizer's runtime before it"
cat >"$TMP/few.py" <<'END'
import resource, socket, struct, sys, time
if sys.argv[1] == "server":
    s = socket.create_server(("127.0.0.1", int(sys.argv[2]))).accept()[0]
    while data := s.recv(100):
        time.sleep(0.05 if data == b"slow" else 0)
        s.sendall(data)
    sys.exit()
s = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
def say(word):
    s.sendall(word)
    got = s.recv(100)
    if got != word:
        sys.exit(f"{got} for {word}")
for i in range(300):
    say(b"fast")
    time.sleep(0.0003)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for i in range(10):
    say(b"slow")
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 30000))
try:
    s.recv(100)
    sys.exit("a byte that nobody sent")
except BlockingIOError:
    print("ok")
END
MODES="bare both"
job() { two_ends python3 -S -E "$TMP/few.py"; }
for_modes job 100

cat >"$TMP/full.py" <<'END'
import os, resource, socket, sys, time
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
if sys.argv[1] == "server":
    s = socket.create_server(("127.0.0.1", int(sys.argv[2]))).accept()[0]
    s.sendall(b"a")
    wait_for(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    os.rename(sys.argv[3], sys.argv[3] + ".done")
else:
    s = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    wait_for(sys.argv[3] + ".done")
s.recv(1)
s.sendall(b"b")
s.recv(1)
wait_for(sys.argv[3] + ".end")
END
begin_mode both
policy 'earn_bytes 1' 'discovery 60s'
free_port port
server python3 -S -E "$TMP/full.py" server "$port" "$TMP/go"
wait_port "$port"
start client "$TMP/client.log" python3 -S -E "$TMP/full.py" client "$port" "$TMP/go"
waits() { grep -q "@rdmashim1\.....$(printf %04x "$port")7f000001" /proc/net/unix; }
within 20 waits || fail "the server does not open a discovery socket"
sleep 0.3	# the client, of which nothing was heard yet, is searched for all the same
: >"$TMP/go"
reasons() { RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" conn -o reason | sed 1d | sort | xargs; }
says() { [[ $(reasons) == *no-fds* ]]; }
within 20 says || fail "a server without descriptors: $(reasons)"
: >"$TMP/go.end"

# Who may have fewer than 64 gets each of them: no path is looked for, and nothing that a path
# needs is made, not even for a moment.
cat >"$TMP/all.py" <<'END'
import os, socket, sys, time
own = socket.create_server(("127.0.0.1", int(sys.argv[2]))) if sys.argv[1] == "server" else None
s = own.accept()[0] if own else socket.create_connection(("127.0.0.1", int(sys.argv[2])))
def free():
    got = []
    try:
        while True:
            got.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for fd in got:
        os.close(fd)
    return len(got)
least = 1000
if sys.argv[1] == "client":
    s.sendall(b"0")
for i in range(1000):
    if not s.recv(1):
        break
    s.sendall(b"x")
    least = min(least, free())
    time.sleep(0.0005)
s.close()
print(least, "descriptors left")
END
MODES="bare both"
quickly() {
	policy 'earn_bytes 0' 'earn_rounds 0' 'watch_after 0'
	rm -f "$STAT"/*
}
all() {
	quickly
	two_ends prlimit --nofile="$LIMIT" python3 -S -E "$TMP/all.py"
	cat "$TMP/server.log" >>"$OUT"
}
for LIMIT in 12 63; do
	for_modes all none
	collect
	[[ $REASONS == no-fds:2 ]] || fail "with $LIMIT: $REASONS"
done

# A limit that is lowered on the path: what the other end sent before it exited comes, and a close
# does not wait for an other end that stands still. A limit that is raised: the next connection
# finds its path.
cat >"$TMP/moves.py" <<'END'
import os, resource, signal, socket, sys, threading, time
def limit(n):
    resource.setrlimit(resource.RLIMIT_NOFILE, (n, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
def busy(s, client):
    for i in range(300):
        if client:
            s.sendall(b"x")
            time.sleep(0.0003)
        if s.recv(1) != b"x":
            sys.exit("not what was sent")
        if not client:
            s.sendall(b"x")
what, side, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
if side == "server":
    listener = socket.create_server(("127.0.0.1", port))
    s = listener.accept()[0]
    busy(s, False)
    if what == "sent":
        s.sendall(b"z" * (1 << 20))
        os._exit(0)
    if what == "raised":
        busy(listener.accept()[0], False)
    if what == "stopped":
        s.sendall(b"%10d" % os.getpid())
    while s.recv(65536):
        pass
    sys.exit()
if what == "raised":
    limit(32)
s = socket.create_connection(("127.0.0.1", port))
busy(s, True)
if what == "raised":
    limit(1024)
    busy(socket.create_connection(("127.0.0.1", port)), True)
    print("both well")
else:
    limit(32)
if what == "sent":
    n, data = 0, b"-"
    while data:
        time.sleep(0.25 if n < 400000 else 0)
        data = s.recv(100000)
        n += len(data)
    print(n, "bytes")
if what == "stopped":
    peer, late = int(s.recv(10, socket.MSG_WAITALL)), []
    s.sendall(b"y" * 1000)
    os.kill(peer, signal.SIGSTOP)
    t = threading.Timer(4, lambda: late.append(os.kill(peer, signal.SIGCONT)))
    t.start()
    s.close()
    print("closed late" if late else "closed")
    t.join()
END
moves() {
	quickly
	two_ends python3 -S -E "$TMP/moves.py" "$WHAT"
}
for WHAT in sent stopped raised; do for_modes moves; done
[[ " $REASONS " == *" no-fds:1 "* ]] || fail "raised: $REASONS"
((FAILURES == 0))
