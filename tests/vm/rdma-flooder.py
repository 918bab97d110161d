#!/usr/bin/env python3
"""rdma-flooder.py ADDR PORT N: takes all 64 places of a discovery port with silent connections,
makes one more, and says which is closed first ("closed 1": the oldest gave way). Then it
keeps N connections to a discovery port open that say nothing, half a call, or a call for a
connection that is not there and no more; those that are closed are made again, twenty times a
second. Until SIGTERM."""
import re, select, socket, struct, sys, time

addr, port, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
VERSION = int(re.search(r"#define NET_VERSION\s+(\d+)",
    open("shim/discovery/net_msg.h").read()).group(1))
CALL = (b"rdmashim" + struct.pack("<IHHII", 0x01020304, VERSION, 1, 1, 1) + bytes(16)
        + struct.pack("<4H", socket.AF_INET, 9, 9, 0)
        + bytes(32) + bytes(32) + bytes(32) + bytes(16))
says = [b"", CALL[:100], CALL]
open_, made = [], 0
first = [socket.create_connection((addr, port)) for _ in range(65)]
gone = select.select(first, [], [], 20)[0]
print("closed", min((first.index(s) + 1 for s in gone), default="none"), flush=True)
for s in first:
    s.close()
while True:
    ready = select.select(open_, [], [], 0)[0]
    for s in ready:
        try:
            if s.recv(1000):
                continue
        except OSError:
            pass
        open_.remove(s)
        s.close()
    while len(open_) < n:
        s = socket.socket()
        s.settimeout(5)
        try:
            s.connect((addr, port))
            s.sendall(says[made % 3])
        except OSError:
            s.close()
            break
        open_.append(s)
        made += 1
        if made % 500 == 0:
            print(made, flush=True)
    time.sleep(0.05)
