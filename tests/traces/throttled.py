# throttled.py COUNT: a program that passes on its connections, one each second, whose peer, of
# another user, has a fiftieth of a CPU: it stands still for 98 ms, runs for 2 ms, and so on. Each
# fifth finds it stopped. For record.sh, as root.
import os
import signal
import socket
import subprocess
import sys
import time

OTHER = 31337
conf = os.environ["RDMASHIM_CONF"]
if os.environ.get("THROTTLED") != "1":
    with open(conf, "a") as f:
        f.write("peer_users %d\n" % OTHER)
    os.execve(sys.executable, [sys.executable, "-S", "-E"] + sys.argv,
              dict(os.environ, THROTTLED="1"))
COUNT = int(sys.argv[1])
ECHO = """import select, socket
e = select.epoll()
conns = {}
for i in range(%d):
    c = socket.create_connection(("127.0.0.1", %d))
    conns[c.fileno()] = c
    e.register(c.fileno(), select.EPOLLIN)
while True:
    for fd, _ in e.poll():
        conns[fd].sendall(conns[fd].recv(100))"""
listener = socket.create_server(("127.0.0.1", 0))
os.chmod(os.path.dirname(conf), 0o755)
theirs = conf + ".theirs"
with open(theirs, "w") as f:
    f.write("earn_bytes 0\nearn_rounds 0\npeer_users 0\n")
peer = subprocess.Popen(["python3", "-S", "-E", "-c", ECHO % (COUNT, listener.getsockname()[1])],
                        user=OTHER, group=OTHER, extra_groups=[], cwd="/",
                        env=dict(os.environ, RDMASHIM_CONF=theirs, RDMASHIM_STAT_DIR="/none"))
conns = [listener.accept()[0] for _ in range(COUNT)]
for _ in range(1000):
    for c in conns:
        c.sendall(b"x" * 100)
        c.recv(100)
    time.sleep(0.001)
throttle = subprocess.Popen(["python3", "-S", "-E", "-c", """import os, signal, time
while True:
    os.kill(%d, signal.SIGSTOP)
    time.sleep(0.098)
    os.kill(%d, signal.SIGCONT)
    time.sleep(0.002)""" % (peer.pid, peer.pid)], env={"PATH": os.environ["PATH"]})
ours, its = socket.socketpair()
for i, c in enumerate(conns):
    time.sleep(1)
    if i % 5 == 4:
        throttle.send_signal(signal.SIGSTOP)
        peer.send_signal(signal.SIGSTOP)
    c.sendall(b"x" * 100)
    socket.send_fds(ours, [b"x"], [c.fileno()])
    peer.send_signal(signal.SIGCONT)
    throttle.send_signal(signal.SIGCONT)
throttle.kill()
peer.kill()
