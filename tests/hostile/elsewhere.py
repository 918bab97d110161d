"""Ends for elsewhere.sh; they know nothing of the library.
	elsewhere.py server PORT SOURCE DIR
	    moves to a network namespace of its own, after a connection in the first one, and takes
	    one there, of a client (guest) that it starts itself: says what came, and answers
	elsewhere.py guest PORT SOURCE DIR
	    that client: says what was answered
	elsewhere.py thief PORT SOURCE DIR
	    has a connection of the same names in the first namespace, and speaks first
	elsewhere.py decoy PORT SOURCE DIR
	    to whom the thief is connected, by TCP
"""
import ctypes, os, socket, subprocess, sys, threading, time

CLONE_NEWNET = 0x40000000
SECRET = b"for the guest"


def tell(place, word):
    open(os.path.join(place, word), "w").close()


def await_(place, word):
    while not os.path.exists(os.path.join(place, word)):
        time.sleep(0.01)


def one_here():
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    peer, _ = listener.accept()
    for _ in range(20):
        client.sendall(b"x")
        peer.recv(1)
        time.sleep(0.01)
    return client, peer


def run_plain(what, port, source, place):
    plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    return subprocess.Popen([sys.executable, __file__, what, str(port), str(source), place],
                            env=plain)


def server(port, source, place):
    here = one_here()
    # With another thread of the program's the library's stays in this namespace.
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        sys.exit(77)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    listener = socket.create_server(("127.0.0.1", port))
    guest = run_plain("guest", port, source, place)
    s, _ = listener.accept()
    s.settimeout(10)
    s.sendall(s.recv(1))
    tell(place, "begun")
    print("descriptor", s.fileno(), "got", s.recv(100).decode(), flush=True)
    s.sendall(SECRET)
    code = guest.wait()
    tell(place, "over")
    sys.exit(code)


def client(port, source):
    s = socket.socket()
    s.bind(("127.0.0.1", source))
    s.connect(("127.0.0.1", port))
    s.settimeout(10)
    s.sendall(b"x")
    return s


def hear(s):
    try:
        return s.recv(100).decode() or "nothing"
    except OSError as e:
        return str(e)


def guest(port, source, place):
    s = client(port, source)
    s.recv(1)
    await_(place, "spoken")
    s.sendall(b"from the guest")
    print("guest got", hear(s), flush=True)


def decoy(port, _, place):
    listener = socket.create_server(("127.0.0.1", port))
    tell(place, "decoy")
    s, _ = listener.accept()
    s.sendall(s.recv(1))
    await_(place, "over")


def thief(port, source, place):
    run_plain("decoy", port, source, place)
    await_(place, "decoy")
    await_(place, "begun")
    s = client(port, source)
    s.recv(1)
    await_(place, "known")
    s.sendall(b"forged")
    tell(place, "spoken")
    print("thief got", hear(s), flush=True)


{"server": server, "guest": guest, "thief": thief, "decoy": decoy}[sys.argv[1]](
    int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
