"""Ends of a connection between two network namespaces, of which one has said all that it has to say
and does not read for a while. They know nothing of the library.
	nshalf.py server PORT
		a word for each of 200; then ANSWER bytes and the end of its half; reads on two
		seconds later, to the end
	nshalf.py client ADDRESS PORT
		200 words, and reads to that end; then BULK bytes, which nobody reads for more than
		a second
"""
import hashlib, socket, sys, time

from echo import whole

BULK, ANSWER = 300000, 30000


def rest(s):
    data = b""
    while part := s.recv(65536):
        data += part
    return data


def server(port):
    c, _ = socket.create_server(("0.0.0.0", port)).accept()
    for i in range(200):
        c.sendall(whole(c, 64))
    c.sendall(b"a" * ANSWER)
    c.shutdown(socket.SHUT_WR)
    time.sleep(2)
    print("read", hashlib.sha1(rest(c)).hexdigest(), flush=True)


def client(address, port):
    s = socket.create_connection((address, port))
    for i in range(200):
        s.sendall(b"x" * 64)
        whole(s, 64)
        if i == 99:
            time.sleep(0.5)
    print("answer", hashlib.sha1(rest(s)).hexdigest())
    time.sleep(0.3)		# its kernel's FIN has come, too
    s.sendall(b"b" * BULK)
    time.sleep(0.3)
    s.sendall(b"c")
    print("error", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    s.close()


for data in b"b" * BULK + b"c", b"a" * ANSWER:
    print("right", hashlib.sha1(data).hexdigest())
if sys.argv[1] == "server":
    server(int(sys.argv[2]))
else:
    client(sys.argv[2], int(sys.argv[3]))
