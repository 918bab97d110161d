"""Runs a command in a mount namespace in which DIR is a FUSE file system, open to all, that
answers no question for a name in it. All that waits is released at the end. Exits with the
command's status; 77: there can be no such thing here.

usage: stat_hang.py DIR CMD...
"""
import ctypes
import os
import struct
import subprocess
import sys
import threading

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
LOOKUP, FORGET, GETATTR, INIT = 1, 2, 3, 26
libc = ctypes.CDLL(None, use_errno=True)
asked = threading.Event()


def answer(dev, unique, body, error=0):
    try:
        os.write(dev, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
    except OSError:
        pass


def serve(dev):
    while True:
        try:
            req = os.read(dev, 1 << 17)
        except OSError:
            return
        _, op, unique = struct.unpack_from("<IIQ", req)
        if op == INIT:
            major, minor, ahead = struct.unpack_from("<III", req, 40)
            body = struct.pack("<IIIIHHI", 7, 31, ahead, 0, 0, 0, 4096)
            answer(dev, unique, body.ljust(64, b"\0"))
        elif op == GETATTR:
            attr = struct.pack("<6Q10I", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 1001, 1001,
                               0, 4096, 0)
            answer(dev, unique, struct.pack("<QII", 0, 0, 0) + attr)
        elif op == LOOKUP:
            asked.set()
        elif op != FORGET:
            answer(dev, unique, b"", -38)


def main():
    where = sys.argv[1]
    how = b"fd=%d,rootmode=40000,user_id=1001,group_id=1001,allow_other"
    try:
        dev = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as e:
        print(e)
        sys.exit(77)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) or \
            libc.mount(b"none", where.encode(), b"fuse", 0, how % dev):
        print("no FUSE:", os.strerror(ctypes.get_errno()))
        sys.exit(77)
    threading.Thread(target=serve, args=(dev,), daemon=True).start()
    rc = subprocess.run(sys.argv[2:]).returncode
    if not asked.is_set():
        sys.exit("nothing was asked of the file system")
    libc.umount2(where.encode(), 1)		# MNT_FORCE: it ends what waits
    os._exit(rc)


main()
