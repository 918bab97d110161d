"""What test programs say to each other: blocks to a server that sends back all that comes. Knows
nothing of the library."""
import sys


def serve(s):
    """Until the other end closes, or resets."""
    try:
        while data := s.recv(65536):
            s.sendall(data)
    except ConnectionResetError:
        pass
    s.close()


def whole(s, n):
    """n bytes, neither more nor fewer."""
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        assert part, "the end"
        data += part
    return data


def exchange(s, block, what):
    """Sends the block and wants it back; `what` is said of other bytes."""
    s.sendall(block)
    got = b""
    while len(got) < len(block):
        part = s.recv(65536)
        if not part:
            sys.exit("end of file in the middle")
        got += part
    if got != block:
        sys.exit(what)
