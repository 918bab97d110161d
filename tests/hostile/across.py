"""Ends of a connection between two network namespaces, and who would get between them. They know
nothing of the library, but for the names in its directory.
	across.py server ADDRESS PORT		echoes, one thread for each connection
	across.py client ADDRESS PORT WORD [GO]	100 messages; few until the file GO is there, then
						500 more, half a second, and 100; each answered as
						it must be, with the server's WORD before the first
	across.py relay PORT ADDRESS PORT	takes connections and carries them on
	across.py tproxy PORT			the same by both ends' addresses (IP_TRANSPARENT)
	across.py squat DIR HOW			lies in wait for a name in DIR, and
	    take	takes its place, and says something
	    silent	... and says nothing
	    pass	... and passes on what is said to the one that was there, both ways
	    link	takes its place by a link to a socket elsewhere
	    knock	knocks there, until it is gone, and says something
	across.py sniff PORT FILE		writes the client's port and both ISNs of the next
						connection to PORT into FILE
	across.py forge ADDRESS TO PORT ITS-PORT ISN ISN
						a socket that has all that (TCP_REPAIR); sends by it
Files READY.HOW in DIR's parent say that it has begun, and DONE.HOW what it has met.
"""
import os, select, socket, struct, sys, threading, time

from echo import whole

IP_TRANSPARENT = 19
RECORD = (14).to_bytes(2, "little") + (6).to_bytes(2, "little") + os.urandom(60)	# CTL_PROOF


def serve(c):
    c.sendall(sys.argv[4].encode() if len(sys.argv) > 4 else b"word")
    while data := c.recv(65536):
        c.sendall(data)


def each(listener, what):
    while True:
        c, name = listener.accept()
        threading.Thread(target=what, args=(c,), daemon=True).start()


def rounds(s, n):
    for i in range(n):
        m = os.urandom(100)
        s.sendall(m)
        assert whole(s, 100) == m, "other bytes"


def client(address, port, word, go=None):
    s = socket.create_connection((address, port))
    assert whole(s, len(word)) == word.encode(), "another server"
    rounds(s, 100)
    until = time.monotonic() + 10
    while go and not os.path.exists(go) and time.monotonic() < until:
        time.sleep(0.01)
        rounds(s, 1)	# who looks for the other end learns by what it sends
    rounds(s, 500)
    time.sleep(0.5)
    rounds(s, 100)
    print("right")


def pump(a, b):
    try:
        while True:
            for s in select.select([a, b], [], [])[0]:
                data = s.recv(65536)
                if not data:
                    return
                (b if s is a else a).sendall(data)
    except OSError:
        pass
    finally:
        a.close()
        b.close()


def transparent(c):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
    s.bind(c.getpeername())
    s.connect(c.getsockname())
    pump(c, s)


def listen_transparent(port):
    l = socket.socket()
    l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    l.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
    l.bind(("0.0.0.0", port))
    l.listen()
    return l


def unix(what, path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    getattr(s, what)(path)
    return s


def squat(d, how):
    here = os.path.dirname(d)
    open(f"{here}/READY.{how}", "w").close()
    met = []
    end = time.monotonic() + 20
    while time.monotonic() < end and not met:
        for name in os.listdir(d):
            if not name.startswith("shim1n."):
                continue
            path = f"{d}/{name}"
            try:
                if how == "knock":
                    for i in range(3):
                        s = unix("connect", path)
                        s.send(RECORD)
                        print("heard", len(s.recv(100)), len(s.recv(100)))
                        met = [name]
                    break
                met.append(name)
                os.rename(path, here + "/real")
                if how == "link":
                    os.symlink(here + "/elsewhere", path)
                    l = unix("bind", here + "/elsewhere")
                else:
                    l = unix("bind", path)
                l.listen()
                open(f"{here}/GO.{how}", "w").close()
                l.settimeout(10)
                c, _ = l.accept()
                open(f"{here}/met.{how}", "w").close()
                if how == "take":
                    c.send(RECORD)
                    print("heard", len(c.recv(100)))
                elif how == "pass":
                    pump(c, unix("connect", here + "/real"))
                else:
                    time.sleep(3)
            except OSError as e:
                print(e)
        time.sleep(0.001)
    open(f"{here}/GO.{how}", "w").close()
    with open(f"{here}/DONE.{how}", "w") as f:
        f.write(" ".join(met))


def sniff(port, path):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    open(path + ".ready", "w").close()
    syn = None
    while True:
        p = s.recv(2048)
        t = p[(p[0] & 15) * 4:]
        if p[9] != socket.IPPROTO_TCP or len(t) < 20:
            continue
        sport, dport, seq, _ = struct.unpack(">HHII", t[:12])
        if dport == port and t[13] & 0x12 == 2:
            syn = sport, seq
        elif syn and sport == port and t[13] & 0x12 == 0x12:
            break
    with open(path + ".new", "w") as f:
        f.write(f"{syn[0]} {syn[1]} {seq}")
    os.rename(path + ".new", path)


def forge(address, to, port, its, *isn):
    REPAIR, QUEUE, SEQ = 19, 20, 21
    s = socket.socket()
    s.setsockopt(socket.IPPROTO_TCP, REPAIR, 1)
    for queue, n in (2, isn[0]), (1, isn[1]):
        s.setsockopt(socket.IPPROTO_TCP, QUEUE, queue)
        s.setsockopt(socket.IPPROTO_TCP, SEQ, (n + 1) % 2**32 - (2**32 if n + 1 >= 2**31 else 0))
    s.bind((address, its))
    s.connect((to, port))
    s.setsockopt(socket.IPPROTO_TCP, REPAIR, 0)
    for i in range(30):
        s.send(b"x" * 100)
        time.sleep(0.1)
    print("forged")


what, args = sys.argv[1], sys.argv[2:]
if what == "server":
    each(socket.create_server((args[0], int(args[1]))), serve)
elif what == "client":
    client(args[0], int(args[1]), *args[2:])
elif what == "relay":
    to = (args[1], int(args[2]))
    each(socket.create_server(("0.0.0.0", int(args[0]))),
         lambda c: pump(c, socket.create_connection(to)))
elif what == "tproxy":
    each(listen_transparent(int(args[0])), transparent)
elif what == "sniff":
    sniff(int(args[0]), args[1])
elif what == "forge":
    forge(args[0], args[1], *map(int, args[2:]))
elif what == "squat":
    squat(*args)
