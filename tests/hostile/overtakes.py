"""Somebody else gets a connection whose bytes are on the path still, since the peer stands still
and is waited for no longer. He sends at once: behind what was sent before, or the connection is
reset. Who reads must not take the one for the other and never hear of it.
overtakes.py server PORT PROGRESS HOW | client PORT SERVER PROGRESS HOW
HOW: sends     a child that is started with it sends
     half      the same after the peer has closed its own direction
     looks     a child sends whose program is looked for in 100 places first: he is waited for once
     ends      that child closes the direction
     becomes   the program becomes another one, which sends; the peer goes on after 0.6 s
     received  a process that is none of ours, and gets it by SCM_RIGHTS, sends"""
import array, os, signal, socket, subprocess, sys, time

port, how = int(sys.argv[2]), sys.argv[-1]
FIRST, SECOND = 200000, 0 if how == "ends" else 500
CHILD = """import os, socket, sys
c = socket.socket(fileno=int(sys.argv[1]))
if %r == "received":
    c = socket.socket(fileno=socket.recv_fds(c, 1, 1)[1][0])
c.setblocking(True)
c.sendall(b"c" * %d)
if %r == "ends":
    c.shutdown(socket.SHUT_WR)
print("sent", flush=True)
sys.stdin.readline()""" % (how, SECOND, how)


def serve():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    c, _ = listener.accept()
    while True:
        d = c.recv(3000)
        c.sendall(d)
        if d.endswith(b"!"):
            break
    if how == "half":
        c.shutdown(socket.SHUT_WR)
    while not os.path.exists(sys.argv[3]):
        time.sleep(0.01)
    got, reset = b"", False
    try:
        while len(got) < FIRST + SECOND:
            d = c.recv(1 << 16)
            if not d:
                break
            got += d
    except (ConnectionResetError, BrokenPipeError):
        reset = True
    whole = b"b" * FIRST + b"c" * SECOND
    print("reset" if reset else "in order" if got == whole else
          "OVERTAKEN after %d of %d" % (got.find(b"c"), len(got)))


def starts(fd, program=sys.executable, **env):
    return subprocess.Popen([program, "-S", "-E", "-c", CHILD, str(fd)],
                            close_fds=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **env)


def become(c):
    """It has to wait for the peer: what is not on TCP by then is lost."""
    subprocess.Popen(["sh", "-c", "sleep 0.6; kill -CONT " + sys.argv[3]])
    os.execv(sys.executable, [sys.executable, "-S", "-E", "-c", """import os, sys, time
os.write(int(sys.argv[1]), b"c" * %d)
time.sleep(1)
open(sys.argv[2], "w").close()
time.sleep(1)""" % SECOND, str(c.fileno()), sys.argv[4]])


def call():
    c = socket.create_connection(("127.0.0.1", port))
    if how == "received":
        ours, its = socket.socketpair()
        its.set_inheritable(True)
        bare = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        child = starts(its.fileno(), env=bare)
    else:
        c.set_inheritable(True)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        c.sendall(b"x" * 100)
        c.recv(100)
    c.sendall(b"!")
    while not c.recv(3000).endswith(b"!"):
        pass
    if how == "half":
        assert not c.recv(1)
    c.sendall(b"b" * FIRST)
    os.kill(int(sys.argv[3]), signal.SIGSTOP)
    if how == "becomes":
        become(c)
    start = time.monotonic()
    if how == "received":
        ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                               array.array("i", [c.fileno()]))])
    elif how == "looks":
        path = "".join("/nowhere/%d:" % i for i in range(100)) + os.environ["PATH"]
        child = starts(c.fileno(), program="python3", env=dict(os.environ, PATH=path))
    else:
        child = starts(c.fileno())
    if how == "looks" and time.monotonic() - start > 0.5:
        sys.exit("the child starts after %.1f s" % (time.monotonic() - start))
    print("%d ms" % ((time.monotonic() - start) * 1000), flush=True)
    child.stdout.readline()
    os.kill(int(sys.argv[3]), signal.SIGCONT)
    time.sleep(1)
    open(sys.argv[4], "w").close()
    child.stdin.close()
    child.wait()
    time.sleep(1)


{"server": serve, "client": call}[sys.argv[1]]()
