#!/usr/bin/env python3
"""bound.py: both ends of a connection, which do not block and are not waited for, so nothing can be
cut over; says its port, and ends with its input."""
import socket
import sys

listener = socket.create_server(("127.0.0.1", 0))
a = socket.create_connection(listener.getsockname())
b, _ = listener.accept()
a.setblocking(False)
b.setblocking(False)
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
