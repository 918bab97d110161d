#!/usr/bin/python3
"""grpc-pair.py server PORT | client PORT | bench PORT SECS: gRPC (HTTP/2 over its own event
engine): calls one by one, many at once, streams both ways, a cancelled and a too late one.
The client prints what must be the same on every path; bench how many calls a second there
are, one by one and 32 at once, and how many MB of 1 MB messages."""
import hashlib
import sys
import threading
import time
from concurrent import futures

import grpc

BIG = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]


def pattern(seed, n):
    return hashlib.shake_128(seed.to_bytes(8, "little")).digest(n)


class Handlers(grpc.GenericRpcHandler):
    def service(self, call):
        return {
            "/t/echo": grpc.unary_unary_rpc_method_handler(lambda q, _: q[::-1]),
            "/t/count": grpc.unary_stream_rpc_method_handler(self.count),
            "/t/sum": grpc.stream_unary_rpc_method_handler(self.sum),
            "/t/chat": grpc.stream_stream_rpc_method_handler(self.chat),
            "/t/never": grpc.unary_unary_rpc_method_handler(self.never),
        }.get(call.method)

    def count(self, q, _):
        for i in range(int(q)):
            yield pattern(i, 1 + i * 37 % 5000)

    def sum(self, parts, _):
        h = hashlib.sha256()
        for p in parts:
            h.update(p)
        return h.hexdigest().encode()

    def chat(self, parts, _):
        for p in parts:
            yield hashlib.sha256(p).digest()

    def never(self, _, context):
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait()
        return b""


def serve(port):
    server = grpc.server(futures.ThreadPoolExecutor(16), options=BIG)
    server.add_generic_rpc_handlers((Handlers(),))
    if server.add_insecure_port("127.0.0.1:%s" % port) == 0:
        sys.exit("port %s is taken" % port)
    server.start()
    server.wait_for_termination()


def code(call):
    try:
        call()
    except grpc.RpcError as e:
        return e.code().name
    except grpc.FutureCancelledError:
        return "CANCELLED"
    return "no error"


def talk(port):
    with grpc.insecure_channel("127.0.0.1:%s" % port, options=BIG) as ch:
        echo = ch.unary_unary("/t/echo")
        for n in (0, 1, 100, 70000, 5000000):
            q = pattern(n, n)
            assert echo(q, timeout=60) == q[::-1], n
        print("one by one: right")

        calls = [(i, echo.future(pattern(i, 1 + i % 3000), timeout=60)) for i in range(1000)]
        assert all(f.result() == pattern(i, 1 + i % 3000)[::-1] for i, f in calls)
        print("1000 at once: right")

        got = list(ch.unary_stream("/t/count")(b"2000", timeout=60))
        assert got == [pattern(i, 1 + i * 37 % 5000) for i in range(2000)]
        print("stream to here: right")

        parts = [pattern(i, 60000) for i in range(300)]
        want = hashlib.sha256(b"".join(parts)).hexdigest().encode()
        assert ch.stream_unary("/t/sum")(iter(parts), timeout=60) == want
        print("stream from here:", want.decode())

        said = ch.stream_stream("/t/chat")(iter(parts), timeout=60)
        assert [hashlib.sha256(p).digest() for p in parts] == list(said)
        print("streams both ways: right")

        late = ch.unary_unary("/t/never")
        print("too late:", code(lambda: late(b"", timeout=0.2)))
        f = late.future(b"")
        f.cancel()
        print("cancelled:", code(f.result))
        assert echo(b"ab", timeout=60) == b"ba"
        print("and goes on")


def bench(port, secs):
    with grpc.insecure_channel("127.0.0.1:%s" % port, options=BIG) as ch:
        echo = ch.unary_unary("/t/echo")
        for name, size, width in (("one", 100, 1), ("many", 100, 32), ("mb", 1000000, 1)):
            q = pattern(size, size)
            want = q[::-1]
            assert echo(q, timeout=60) == want
            n, start = 0, time.monotonic()
            while time.monotonic() < start + float(secs):
                calls = [echo.future(q, timeout=60) for _ in range(width)] if width > 1 else []
                assert all(f.result() == want for f in calls) if calls else echo(q,
                    timeout=60) == want
                n += width
            print("%s %.1f" % (name, n / (time.monotonic() - start)))


{"server": serve, "client": talk, "bench": bench}[sys.argv[1]](*sys.argv[2:])
