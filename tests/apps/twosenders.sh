#!/bin/bash
# Two threads send on one connection: one whole blocks, which the receiver's process reads out of
# its memory, the other small ones without waiting. The receiver is stopped again and again inside
# such a block. All bytes come, and nobody hangs.
# TIMEOUT: 100
. "$(dirname "$0")/lib.sh"
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'

cat >"$TMP/two.py" <<'END'
import os, signal, socket, threading, time

lis = socket.create_server(("127.0.0.1", 0))
reader = os.fork()
if not reader:
    s = lis.accept()[0]
    n = 0
    while b := s.recv(1 << 20):
        n += len(b)
    lis.close()
    print("received", n, flush=True)
    os._exit(0)
s = socket.create_connection(lis.getsockname())
lis.close()
counts = [0, 0]
over = False


def blocks():
    data = bytes(1 << 20)
    while not over:
        counts[0] += s.send(data)


def small():
    data = bytes(1000)
    while not over:
        try:
            counts[1] += s.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        time.sleep(0.0005)


threads = [threading.Thread(target=f) for f in (blocks, small)]
for t in threads:
    t.start()
for _ in range(30):
    time.sleep(0.03)
    os.kill(reader, signal.SIGSTOP)
    time.sleep(0.08)
    os.kill(reader, signal.SIGCONT)
over = True
for t in threads:
    t.join()
print("sent", sum(counts), "small", counts[1], flush=True)
s.close()
os.waitpid(reader, 0)
END
client timeout -s KILL 40 python3 -S -E "$TMP/two.py" >"$TMP/out.log" 2>&1 ||
	fail "status $?: $(cat "$TMP/out.log")"
collect
read -r _ sent _ small < <(grep '^sent' "$TMP/out.log")
read -r _ got < <(grep '^received' "$TMP/out.log")
say "$sent bytes sent, $small of them in small ones; $FAST on a fast path"
((sent == got && small > 0)) || fail "sent $sent, received $got"
[[ -z $SHIM ]] || ((FAST > 10000000)) || fail "hardly a byte on a fast path"
