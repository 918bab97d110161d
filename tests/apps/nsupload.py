"""Ends of a connection between two network namespaces, of which one only reads. They know nothing
of the library.
	nsupload.py server PORT HOW
		reads to the end, and says what; HOW "late": says a word when it has read some;
		"fork": makes children as it goes, twenty
	nsupload.py client ADDRESS PORT SIZE PAUSE SECONDS
		pieces of SIZE, with a pause
"""
import hashlib, os, socket, sys, time


def server(port, how):
    c, _ = socket.create_server(("0.0.0.0", port)).accept()
    h, n, said = hashlib.sha1(), 0, 0
    while data := c.recv(1 << 16):
        h.update(data)
        n += len(data)
        if how == "late" and n > 100000 and not said:
            said = c.send(b"word")
        if how == "fork" and n > 20000 * said and said < 20:
            said += 1
            if not (pid := os.fork()):
                time.sleep(0.005)
                os._exit(0)
            os.waitpid(pid, 0)
    c.close()
    print("read", n, h.hexdigest(), flush=True)


def client(address, port, size, pause, seconds):
    s = socket.create_connection((address, port))
    h, n, end = hashlib.sha1(), 0, time.monotonic() + seconds
    data = os.urandom(size)
    while time.monotonic() < end:
        s.sendall(data)
        h.update(data)
        n += size
        if pause:
            time.sleep(pause)
    s.shutdown(socket.SHUT_WR)
    while s.recv(100):	# with something unread a close would be a reset
        pass
    s.close()
    print("read", n, h.hexdigest(), flush=True)


if sys.argv[1] == "server":
    server(int(sys.argv[2]), sys.argv[3])
else:
    client(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *map(float, sys.argv[5:]))
