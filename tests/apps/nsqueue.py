"""Ends of a connection between two network namespaces, of which one begins to use its error queue
when it has long been upgraded. They know nothing of the library.
	nsqueue.py server PORT
		echoes
	nsqueue.py client ADDRESS PORT WAY
		1100 words; then asks for what comes in the error queue, and says what has come:
		WAY option, message, zerocopy
"""
import select, socket, struct, sys, time

from echo import whole

SO_TIMESTAMPING, SO_ZEROCOPY, MSG_ZEROCOPY, MSG_ERRQUEUE = 37, 60, 0x4000000, 0x2000
TX_SOFTWARE, SOFTWARE = 2, 16


def echo(port):
    c, _ = socket.create_server(("0.0.0.0", port)).accept()
    while data := c.recv(65536):
        c.sendall(data)


def words(s, n):
    for i in range(n):
        s.sendall(b"x" * 64)
        assert whole(s, 64) == b"x" * 64


def came(s):
    """what the kernel says in the queue, until nothing comes for a while"""
    met = []
    p = select.poll()
    p.register(s, 0)
    while p.poll(500):
        try:
            while True:
                data, control, flags, _ = s.recvmsg(2048, 512, MSG_ERRQUEUE | socket.MSG_DONTWAIT)
                for level, kind, what in control:
                    if (level, kind) == (socket.SOL_IP, 11):
                        met.append(what[4])	# who says it: ee_origin
        except BlockingIOError:
            pass
    return met


def client(address, port, way):
    s = socket.create_connection((address, port))
    for i in range(100):	# who looks for the other end learns by what it sends
        words(s, 10)
        time.sleep(0.01)
    words(s, 100)
    if way == "option":
        s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, TX_SOFTWARE | SOFTWARE)
        for i in range(5):
            s.sendall(b"stamp")
            whole(s, 5)
    elif way == "message":
        for i in range(5):
            s.sendmsg([b"stamp"], [(socket.SOL_SOCKET, SO_TIMESTAMPING,
                                    struct.pack("I", TX_SOFTWARE))])
            whole(s, 5)
    else:
        s.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        for i in range(5):
            s.send(b"z" * 5, MSG_ZEROCOPY)
            whole(s, 5)
    met = came(s)
    print(way, sorted(set(met)), len(met) if way != "zerocopy" else "", flush=True)
    words(s, 10)


if sys.argv[1] == "server":
    echo(int(sys.argv[2]))
else:
    client(sys.argv[2], int(sys.argv[3]), sys.argv[4])
