"""A server for crowded-name.sh; it does not have the library, but looks as if: its sockets bear
the mark, and one of its connections has a discovery socket.
	crowded-name.py PORT CONNECTIONS PID-FILE
Takes the connections, opens the discovery socket of the first, and leaves whoever says HELLO
there without an answer. Prints how much CPU time, in ms, the process in PID-FILE used during a
second of that silence.
"""
import socket, sys, time


def cpu_ns(pid):
    import os
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat") as f:
                total += int(f.read().split()[0])
        except OSError:
            pass
    return total


port, count = int(sys.argv[1]), int(sys.argv[2])
listener = socket.create_server(("127.0.0.1", port), backlog=count)
listener.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)     # shim/discovery/identity.h
held = [listener.accept()[0] for _ in range(count)]
ours = socket.inet_aton("127.0.0.1").ljust(16, b"\0").hex()
name = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
name.bind(f"\0rdmashim1.{held[0].getpeername()[1]:04x}{port:04x}{ours}{ours}")
name.listen(8)
name.settimeout(20)
caller, _ = name.accept()
caller.settimeout(20)
record = caller.recv(64)
if len(record) != 64:
    sys.exit(f"{len(record)} bytes in place of HELLO")
time.sleep(0.2)
pid = int(open(sys.argv[3]).read())
before, began = cpu_ns(pid), time.monotonic()
time.sleep(1)
used, passed = cpu_ns(pid) - before, time.monotonic() - began
if passed > 1.7:        # HELLO is given up after two seconds
    print("late")
else:
    print(int(used / 1e6))
