"""Ends for removed.sh; they know nothing of the library.
	removed.py server PORT			echoes, a thread that waits for each connection
	removed.py client PORT COUNT STOP	COUNT connections at once, each checked all the
						time, until the file STOP is there
"""
import os, socket, sys, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import echo


def server(port):
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    while True:
        s, _ = listener.accept()
        threading.Thread(target=echo.serve, args=(s,), daemon=True).start()


def client(port, count, stop):
    socks = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    n = 0
    while not os.path.exists(stop):
        for i, s in enumerate(socks):
            echo.exchange(s, bytes([(i * 7 + n) % 251]) * 20000, f"connection {i}: wrong bytes in "
                          f"round {n}")
        n += 1
        if n % 10 == 0:
            print("rounds", n, flush=True)
        time.sleep(0.005)
    print("all right", flush=True)


if sys.argv[1] == "server":
    server(int(sys.argv[2]))
else:
    client(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
