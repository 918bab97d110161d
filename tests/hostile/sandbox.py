"""A program of one thread puts itself in a sandbox, by what counts for the calling thread alone.
Whoever takes it over has its memory, and so every thread in it: none may have kept what it gave up.
sandbox.py PORT HOW"""
import ctypes, os, socket, struct, sys, time

port, how = int(sys.argv[1]), sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
CAP_SYS_TIME = 25


def need(r, what):
    if r < 0:
        print(what, os.strerror(ctypes.get_errno()))
        sys.exit(77)
    return r


def of_threads(line):
    for t in os.listdir("/proc/self/task"):
        with open("/proc/self/task/%s/status" % t) as f:
            yield next(x.split()[1] for x in f if x.startswith(line + ":"))


def no_new_privs():
    need(libc.prctl(38, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    return lambda: all(x == "1" for x in of_threads("NoNewPrivs"))


def bound():
    need(libc.prctl(24, CAP_SYS_TIME, 0, 0, 0), "PR_CAPBSET_DROP")
    return lambda: not any(int(x, 16) >> CAP_SYS_TIME & 1 for x in of_threads("CapBnd"))


def permitted(capset=lambda *a: libc.syscall(126, *a)):
    head, data = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
    need(libc.syscall(125, head, data), "capget")
    data.raw = struct.pack("6I", *(x & ~(1 << CAP_SYS_TIME) for x in struct.unpack("6I", data.raw)))
    need(capset(head, data), "capset")
    return lambda: not any(int(x, 16) >> CAP_SYS_TIME & 1 for x in of_threads("CapPrm"))


def by_libc():
    return permitted(libc.capset)


def landlock():
    before = set(os.listdir("/proc/self/task")) - {str(os.getpid())}
    attr = struct.pack("Q", 1 << 12)  # LANDLOCK_ACCESS_FS_MAKE_SYM
    fd = need(libc.syscall(444, attr, ctypes.c_size_t(len(attr)), 0), "landlock_create_ruleset")
    libc.prctl(38, 1, 0, 0, 0)
    before |= set(os.listdir("/proc/self/task")) - {str(os.getpid())}
    need(libc.syscall(446, fd, 0), "landlock_restrict_self")
    return lambda: not before & set(os.listdir("/proc/self/task"))


def mounts():
    need(libc.unshare(0x20000), "unshare")  # CLONE_NEWNS
    return lambda: len({os.readlink("/proc/self/task/%s/ns/mnt" % t)
                        for t in os.listdir("/proc/self/task")}) == 1


def talk():
    for i in range(200):
        c.sendall(bytes([i]) * 3000)
        n = 0
        while n < 3000:
            d = c.recv(3000 - n)
            if not d or d != bytes([i]) * len(d):
                sys.exit("wrong bytes, or an end")
            n += len(d)


def threads():
    return len(os.listdir("/proc/self/task"))


c = socket.create_connection(("127.0.0.1", port))
end = time.monotonic() + 5
while threads() < 2 and time.monotonic() < end:
    talk()
talk()
if threads() < 2:
    sys.exit("the library has no thread")
kept = globals()[how]()
for i in range(20):
    talk()
    if not kept():
        sys.exit("a thread has kept what was given up")
print("%d threads" % threads())
