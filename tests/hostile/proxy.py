"""A proxy that keeps the addresses of both ends, and the ends. They know nothing of the library.
	proxy.py proxy PORT HOW			takes connections to PORT of any address (middle
						brings them), and connects as the client
	    to where it wanted: two connections, of which either end sees the names of one. HOW:
	    same; changed: another byte for
	    each that the client sends; longer: a line before them, as HAProxy's send-proxy does;
	    late: each block after 50 ms
	proxy.py server ADDRESS PORT		echoes one connection after the other
	proxy.py client ADDRESS PORT HOW UNTIL	blocks, each to be answered as it must be by way of
						such a proxy, until the file is there
"""
import os, select, socket, sys, time
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../apps"))
import echo

IP_TRANSPARENT = 19
LINE = b"PROXY TCP4 a b c d\r\n"
OTHER = bytes(b ^ 0x80 for b in range(256))


def seen(data, how):
    return data.translate(OTHER) if how == "changed" else data


def pump(client, server, how):
    if how == "longer":
        server.sendall(LINE)
    while True:
        for s in select.select([client, server], [], [])[0]:
            data = s.recv(65536)
            if not data:
                return
            if how == "late":
                time.sleep(0.05)
            (server if s is client else client).sendall(seen(data, how) if s is client else data)


def proxy(port, how):
    l = socket.socket()
    l.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
    l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    l.bind(("0.0.0.0", port))
    l.listen()
    while True:
        c, name = l.accept()
        s = socket.socket()
        s.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
        s.bind(name)
        s.connect(c.getsockname())
        try:
            pump(c, s, how)
        except ConnectionError:
            pass
        c.close()
        s.close()


def server(address, port):
    l = socket.create_server((address, port))
    while True:
        echo.serve(l.accept()[0])


def client(address, port, how, until):
    s = socket.create_connection((address, port))
    n = 0
    while not os.path.exists(until):
        block = bytes([n % 100]) * 20000
        s.sendall(block)
        want = (LINE if how == "longer" and not n else b"") + seen(block, how)
        got = b""
        while len(got) < len(want):
            part = s.recv(65536)
            if not part:
                sys.exit(f"block {n}: end of file")
            got += part
        if got != want:
            sys.exit(f"block {n}: wrong bytes")
        n += 1
        time.sleep(0.02)
    print(n, "blocks")


{"proxy": lambda p, how: proxy(int(p), how), "server": lambda a, p: server(a, int(p)),
 "client": lambda a, p, *more: client(a, int(p), *more)}[sys.argv[1]](*sys.argv[2:])
