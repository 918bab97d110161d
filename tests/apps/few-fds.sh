#!/bin/bash
# Programs that need no more descriptors and say so (RLIMIT_NOFILE below those they have, as sandboxes do) go on: their blocking calls wait,
# with and without a timeout, for what comes by the ring and for what comes by TCP.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no shim library (SHIM=)"
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
job() {
	local port
	free_port port
	server python3 -S -E "$TMP/few.py" server "$port"
	wait_port "$port"
	client python3 -S -E "$TMP/few.py" client "$port" >"$TMP/client.log" 2>&1 || fail "$(cat "$TMP/client.log" "$TMP/server.log")"
	finish "$SRV" 15 || fail "server: $(cat "$TMP/server.log")"
	cat "$TMP/client.log" >>"$OUT"
}
for_modes job 100
