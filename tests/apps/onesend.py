"""One request, and one send() of 24 MiB for an answer, which is read in chunks, with a
millisecond's rest after each: onesend.py server|client PORT."""
import socket
import sys
import time
import zlib

SIZE = 24 << 20
answer = bytes(range(256)) * (SIZE // 256)
if sys.argv[1] == "server":
    s, _ = socket.create_server(("127.0.0.1", int(sys.argv[2]))).accept()
    assert s.recv(1) == b"?"
    s.sendall(answer)
    s.close()
else:
    s = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    s.sendall(b"?")
    got, crc = 0, 0
    while True:
        b = s.recv(65536)
        if not b:
            break
        got += len(b)
        crc = zlib.crc32(b, crc)
        time.sleep(0.001)
    print("right" if (got, crc) == (SIZE, zlib.crc32(answer)) else "wrong")
