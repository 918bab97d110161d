"""Holds a lock of the kernel's while a command runs, 8 s at most, by memory that never comes: that
of a TCP socket from which is sent (socket), of the file PATH, to which is written (file), or of
the directory of that file, which is being removed meanwhile (directory). Exits with 1 if the
command did not end before, 77 where there is no userfaultfd.

usage: stat_locked.py socket|file|directory PATH CMD...
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

SYS_USERFAULTFD = 323		# of x86_64
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_ZEROPAGE = 0xC018AA3F, 0xC020AA00, 0xC020AA04
PAGE = 4096
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.send.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]


def waits(tid, where):
    with open(f"/proc/self/task/{tid}/wchan") as f:
        return where in f.read()


def start(where, what, *args):
    """A thread that makes that call, once it waits."""
    t = threading.Thread(target=what, args=args)
    t.start()
    end = time.monotonic() + 5
    while not waits(t.native_id, where):
        if time.monotonic() > end:
            os._exit(77)
    return t


def main():
    how, path, cmd = sys.argv[1], sys.argv[2], sys.argv[3:]
    fault = libc.syscall(SYS_USERFAULTFD, os.O_CLOEXEC) if os.uname().machine == "x86_64" else -1
    if fault < 0:
        sys.exit(77)
    fcntl.ioctl(fault, UFFDIO_API, bytearray(struct.pack("<QQQ", 0xAA, 0, 0)))
    page = libc.mmap(None, PAGE, 3, 0x22, -1, 0)
    fcntl.ioctl(fault, UFFDIO_REGISTER, bytearray(struct.pack("<QQQQ", page, PAGE, 1, 0)))
    if how == "socket":
        server = socket.create_server(("127.0.0.1", 0))
        mine = socket.create_connection(server.getsockname())
        threads = [start("userfault", libc.send, mine.fileno(), page, 100, 0)]
    else:
        file = os.open(path, os.O_WRONLY)
        threads = [start("userfault", libc.write, file, page, 100)]
    if how == "directory":
        threads.append(start("unlink", libc.unlink, path.encode()))
    child = subprocess.Popen(cmd)
    try:
        rc = child.wait(8)
    except subprocess.TimeoutExpired:
        rc = 1
    fcntl.ioctl(fault, UFFDIO_ZEROPAGE, bytearray(struct.pack("<QQQq", page, PAGE, 0, 0)))
    for t in threads:
        t.join()
    child.wait()
    sys.exit(rc)


main()
