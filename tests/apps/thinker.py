"""Ends for thinker.sh; they know nothing of the library.
	thinker.py server PORT			echoes one connection
	thinker.py client PORT GO STOP		two requests; when the file GO is there as many as
						it takes, until STOP is there
"""
import os, socket, sys, time
from echo import exchange


port = int(sys.argv[2])
if sys.argv[1] == "server":
    s, _ = socket.create_server(("127.0.0.1", port)).accept()
    while data := s.recv(65536):
        s.sendall(data)
else:
    s = socket.create_connection(("127.0.0.1", port))
    n = 0
    while not os.path.exists(sys.argv[4]):
        n += 1
        exchange(s, n.to_bytes(4, "big") * 100, "wrong bytes")
        while n == 2 and not os.path.exists(sys.argv[3]):
            time.sleep(0.01)
        time.sleep(0.001)
    s.close()
    print("done")
