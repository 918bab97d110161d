"""A child is started with a connection whose bytes are on the path still, since the peer stands
still and is waited for no longer. It sends at once: behind what its parent has sent, or the
connection is reset. Who reads must not take the one for the other and never hear of it.
overtakes.py server PORT PROGRESS | client PORT SERVER"""
import os, signal, socket, subprocess, sys, time

port = int(sys.argv[2])
FIRST, SECOND = 200000, 500


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
    while not os.path.exists(sys.argv[3]):
        time.sleep(0.01)
    got, reset = b"", False
    try:
        while len(got) < FIRST + SECOND:
            d = c.recv(1 << 16)
            if not d:
                break
            got += d
    except ConnectionResetError:
        reset = True
    whole = b"b" * FIRST + b"c" * SECOND
    print("reset" if reset else "in order" if got == whole else
          "OVERTAKEN after %d of %d" % (got.find(b"c"), len(got)))


def call():
    c = socket.create_connection(("127.0.0.1", port))
    c.set_inheritable(True)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        c.sendall(b"x" * 100)
        c.recv(100)
    c.sendall(b"!")
    while not c.recv(3000).endswith(b"!"):
        pass
    c.sendall(b"b" * FIRST)
    os.kill(int(sys.argv[3]), signal.SIGSTOP)
    start = time.monotonic()
    child = subprocess.Popen([sys.executable, "-S", "-E", "-c", "import os, sys\n"
                              "os.write(int(sys.argv[1]), b'c' * %d)\n"
                              "print('sent', flush=True)\n"
                              "sys.stdin.readline()" % SECOND, str(c.fileno())],
                             close_fds=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    print("%d ms" % ((time.monotonic() - start) * 1000), flush=True)
    child.stdout.readline()
    os.kill(int(sys.argv[3]), signal.SIGCONT)
    time.sleep(1)
    open(sys.argv[4], "w").close()
    child.stdin.close()
    child.wait()
    time.sleep(1)


{"server": serve, "client": call}[sys.argv[1]]()
