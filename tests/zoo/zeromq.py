"""zeromq.py server|client PORT: ZeroMQ over TCP, the three patterns that libzmq has states of its
own for. The client prints sums of all that it got; libzmq's threads do the input and output."""
import hashlib
import sys
import threading

import zmq

ROUNDS, LARGE, PARTS = 3000, 40, 20000


def body(i, size):
    return hashlib.sha256(b"%d" % i).digest() * (size // 32 + 1)


def answer(context, port):
    """A router that answers each request with its parts turned round."""
    s = context.socket(zmq.ROUTER)
    s.bind("tcp://127.0.0.1:%d" % port)
    while True:
        who, empty, *parts = s.recv_multipart()
        s.send_multipart([who, empty] + [p[::-1] for p in parts])
        if parts == [b"end"]:
            s.close(linger=10000)
            return


def pour(context, port):
    """To each who pulls: small messages of many sizes, then large ones."""
    s = context.socket(zmq.PUSH)
    s.set_hwm(100)
    s.bind("tcp://127.0.0.1:%d" % port)
    for i in range(PARTS):
        s.send(body(i, i % 999))
    for i in range(LARGE):
        s.send(body(i, 1000000 + i))
    s.close(linger=20000)


def publish(context, port):
    """Begins when the first has subscribed: XPUB tells."""
    s = context.socket(zmq.XPUB)
    s.set_hwm(0)
    s.bind("tcp://127.0.0.1:%d" % port)
    s.recv()
    for i in range(PARTS):
        s.send_multipart([b"even" if i % 2 == 0 else b"odd", body(i, i % 500)])
    s.send_multipart([b"even", b""])
    s.close(linger=20000)


def server(port):
    context = zmq.Context(2)
    jobs = [threading.Thread(target=f, args=(context, port + i))
            for i, f in enumerate((answer, pour, publish))]
    for j in jobs:
        j.start()
    for j in jobs:
        j.join()
    context.term()


def client(port):
    context = zmq.Context(2)
    s = context.socket(zmq.REQ)
    s.connect("tcp://127.0.0.1:%d" % port)
    h = hashlib.sha256()
    for i in range(ROUNDS):
        s.send_multipart([body(i, i % 5000), b"x"])
        for p in s.recv_multipart():
            h.update(p)
    s.send(b"end")
    print("req", h.hexdigest(), s.recv())
    s.close()

    s = context.socket(zmq.PULL)
    s.connect("tcp://127.0.0.1:%d" % (port + 1))
    h, n = hashlib.sha256(), 0
    for i in range(PARTS + LARGE):
        m = s.recv()
        n += len(m)
        h.update(m)
    print("pull", h.hexdigest(), n)
    s.close()

    s = context.socket(zmq.SUB)
    s.set_hwm(0)
    s.subscribe(b"even")
    s.connect("tcp://127.0.0.1:%d" % (port + 2))
    h, n = hashlib.sha256(), 0
    while True:
        topic, m = s.recv_multipart()
        if not m and n:
            break
        n += 1
        h.update(topic + m)
    print("sub", h.hexdigest(), n)
    s.close()
    context.term()


{"server": server, "client": client}[sys.argv[1]](int(sys.argv[2]))
