"""A server on the listener that it was started with (descriptor 3, sd_listen_fds(3)): sends back
what comes, until the end of it."""
import socket
import threading


def echo(c):
    while data := c.recv(65536):
        c.sendall(data)
    c.close()


listener = socket.socket(fileno=3)
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
