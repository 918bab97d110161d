"""Holds the lock of a TCP socket while a command runs, 8 s at most: it sends from memory that never
comes. Exits with 1 if the command did not end before, 77 where there is no userfaultfd.

usage: stat_locked.py CMD...
"""
import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
import threading
import time

SYS_USERFAULTFD = 323
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_ZEROPAGE = 0xC018AA3F, 0xC020AA00, 0xC020AA04
PAGE = 4096
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.send.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def waits(tid):
    with open(f"/proc/self/task/{tid}/wchan") as f:
        return "userfault" in f.read()


def main():
    fault = libc.syscall(SYS_USERFAULTFD, os.O_CLOEXEC)
    if fault < 0 or os.uname().machine != "x86_64":
        sys.exit(77)
    fcntl.ioctl(fault, UFFDIO_API, bytearray(struct.pack("<QQQ", 0xAA, 0, 0)))
    page = libc.mmap(None, PAGE, 3, 0x22, -1, 0)
    fcntl.ioctl(fault, UFFDIO_REGISTER, bytearray(struct.pack("<QQQQ", page, PAGE, 1, 0)))
    server = socket.create_server(("127.0.0.1", 0))
    mine = socket.create_connection(server.getsockname())
    sender = threading.Thread(target=libc.send, args=(mine.fileno(), page, 100, 0))
    sender.start()
    end = time.monotonic() + 5
    while not waits(sender.native_id):
        if time.monotonic() > end:
            os._exit(77)
    cmd = subprocess.Popen(sys.argv[1:])
    try:
        rc = cmd.wait(8)
    except subprocess.TimeoutExpired:
        rc = 1
    fcntl.ioctl(fault, UFFDIO_ZEROPAGE, bytearray(struct.pack("<QQQq", page, PAGE, 0, 0)))
    sender.join()
    cmd.wait()
    sys.exit(rc)


main()
