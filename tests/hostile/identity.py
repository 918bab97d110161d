"""Ends for identity.sh; they know nothing of the library.
	identity.py server PORT [inherited|dropped] [late]      echoes one connection after the
	other, until SIGTERM
	    inherited: a child of another user accepts from the listener that it got; dropped:
	    becomes another user after accept()
	    late: accepts after a second
	identity.py client PORT [COUNT [SOURCE-PORT]]           COUNT connections, each with bytes
	of its own
"""
import os, signal, socket, struct, sys, time
import echo

OTHER = 31337


def become_other():
    os.setgroups([])
    os.setgid(OTHER)
    os.setuid(OTHER)


def server(port, how):
    listener = socket.create_server(("127.0.0.1", port))
    if "inherited" in how:
        child = os.fork()
        if child:
            signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
            os.waitpid(child, 0)
            return
        become_other()
    if "late" in how:
        time.sleep(1)
    while True:
        s, _ = listener.accept()
        if "dropped" in how and os.getuid() != OTHER:
            become_other()
        echo.serve(s)


def client(port, count=1, source=0):
    for i in range(count):
        s = socket.socket()
        if source:      # the same four numbers again: a reset leaves no TIME-WAIT
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.bind(("127.0.0.1", source))
        s.connect(("127.0.0.1", port))
        for n in range(40):
            echo.exchange(s, bytes([(i * 7 + n) % 251]) * 20000, f"connection {i}: wrong bytes")
            if n < (10 if source else 25):
                time.sleep(0.01 if source else 0.03)
        s.close()


{"server": lambda p, *how: server(int(p), how), "client": lambda p,
 *a: client(int(p), *map(int, a))}[sys.argv[1]](*sys.argv[2:])
