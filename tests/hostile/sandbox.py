"""A program of one thread puts itself in a sandbox, by what counts for the calling thread alone.
Whoever takes it over has its memory, and so every thread in it: none may have kept what it gave up.
sandbox.py PORT HOW [WHERE]
WHERE: no-root: below a root directory without /proc; no-proc: something else is mounted there."""
import ctypes, os, socket, struct, subprocess, sys, threading, time

port, how = int(sys.argv[1]), sys.argv[2]
where = sys.argv[3] if len(sys.argv) > 3 else ""
libc = ctypes.CDLL(None, use_errno=True)
tasks = os.open("/proc/self/task", os.O_RDONLY | os.O_DIRECTORY)
CAP_SYS_TIME = 25
NEWNS, NEWNET, FS = 0x20000, 0x40000000, 0x200
CAPGET, CAPSET, SETGROUPS, SETRESUID, SETRESGID, KEYCTL, SETNS, UNSHARE, SECCOMP, LANDLOCK = {
    "x86_64": (125, 126, 116, 117, 119, 250, 308, 272, 317, 444),
    "aarch64": (90, 91, 159, 147, 149, 219, 268, 97, 277, 444),
}[os.uname().machine]


def need(r, what):
    if r < 0:
        print(what, os.strerror(ctypes.get_errno()))
        sys.exit(77)
    return r


def must_fail(r):
    if r >= 0:
        sys.exit("what must fail did not")


def threads():
    return set(os.listdir(tasks))


def ours():
    return threads() - {str(os.getpid())}


def of_threads(line):
    for t in threads():
        try:
            with open(os.open(t + "/status", os.O_RDONLY, dir_fd=tasks)) as f:
                yield next(x.split(":")[1].split() for x in f if x.startswith(line + ":"))
        except FileNotFoundError:
            pass


def none_has(line, bit):
    return not any(int(x[0], 16) >> bit & 1 for x in of_threads(line))


def alike(*lines):
    return lambda: all(len(set(map(tuple, of_threads(x)))) == 1 for x in lines)


def same_link(name):
    return lambda: len({os.readlink(t + name, dir_fd=tasks) for t in threads()}) == 1


def others_than(before):
    return lambda: not before & ours()


def no_new_privs():
    need(libc.prctl(38, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    return lambda: all(x == ["1"] for x in of_threads("NoNewPrivs"))


def bound():
    need(libc.prctl(24, CAP_SYS_TIME, 0, 0, 0), "PR_CAPBSET_DROP")
    return lambda: none_has("CapBnd", CAP_SYS_TIME)


def caps(change, capset=lambda *a: libc.syscall(CAPSET, *a)):
    head, data = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
    need(libc.syscall(CAPGET, head, data), "capget")
    data.raw = struct.pack("6I", *change(*struct.unpack("6I", data.raw)))
    need(capset(head, data), "capset")


def less(*words):
    return [x & ~(1 << CAP_SYS_TIME) for x in words]


def permitted(capset=lambda *a: libc.syscall(CAPSET, *a)):
    caps(less, capset)
    return lambda: none_has("CapPrm", CAP_SYS_TIME)


def by_libc():
    return permitted(libc.capset)


def inheritable():
    caps(lambda e, p, i, *more: (e, p, i | 1 << CAP_SYS_TIME, *more))
    caps(lambda e, p, i, *more: (*less(e, p), i, *more))
    talk()
    caps(lambda e, p, i, *more: (e, p, *less(i), *more))
    return lambda: none_has("CapInh", CAP_SYS_TIME) and none_has("CapPrm", CAP_SYS_TIME)


def ambient():
    caps(lambda e, p, i, *more: (e, p, i | 1 << CAP_SYS_TIME, *more))
    need(libc.prctl(47, 2, CAP_SYS_TIME, 0, 0), "PR_CAP_AMBIENT_RAISE")
    anew()
    need(libc.prctl(47, 3, CAP_SYS_TIME, 0, 0), "PR_CAP_AMBIENT_LOWER")
    return lambda: none_has("CapAmb", CAP_SYS_TIME)


def securebits():
    before = ours()
    need(libc.prctl(28, 1, 0, 0, 0), "PR_SET_SECUREBITS")
    return others_than(before)


def keepcaps():
    need(libc.prctl(8, 1, 0, 0, 0), "PR_SET_KEEPCAPS")
    anew()
    need(libc.prctl(8, 0, 0, 0, 0), "PR_SET_KEEPCAPS")
    need(libc.setresuid(1001, 1001, 1001), "setresuid")
    return lambda: all(x == ["0" * 16] for x in of_threads("CapPrm"))


def user():
    need(libc.syscall(SETRESUID, 1001, 1001, 1001), "setresuid")
    return alike("Uid", "CapPrm", "CapEff")


def group():
    need(libc.syscall(SETRESGID, 1001, 1001, 1001), "setresgid")
    return alike("Gid")


def groups():
    os.setgroups([5, 6])
    need(libc.syscall(SETGROUPS, 0, None), "setgroups")
    need(libc.setresuid(1001, 1001, 1001), "setresuid")
    return alike("Groups", "Uid")


def regroups():
    """Samba changes them all the time: the library's threads have none, and are not made anew."""
    os.setgroups([5, 6])
    words = [(ctypes.c_uint32 * 2)(*g) for g in ((5, 6), (6, 7), (0, 5))]
    need(libc.syscall(SETGROUPS, 1, words[0]), "setgroups")
    talk()
    before = ours()
    for i in range(300):
        need(libc.syscall(SETGROUPS, i % 3, words[i % 3]), "setgroups")
    if before != ours():
        sys.exit("the library's thread was made anew")
    need(libc.syscall(SETGROUPS, 0, None), "setgroups")
    need(libc.setresuid(1001, 1001, 1001), "setresuid")
    return alike("Groups", "Uid")


def keyring():
    before = ours()
    need(libc.syscall(KEYCTL, 1, None), "KEYCTL_JOIN_SESSION_KEYRING")
    return others_than(before)


def landlock():
    attr = struct.pack("Q", 1 << 12)  # LANDLOCK_ACCESS_FS_MAKE_SYM
    fd = need(libc.syscall(LANDLOCK, attr, ctypes.c_size_t(len(attr)), 0), "no Landlock")
    libc.prctl(38, 1, 0, 0, 0)
    before = ours()
    need(libc.syscall(446, fd, 0), "landlock_restrict_self")
    return others_than(before)


def mounts():
    need(libc.unshare(NEWNS), "unshare")
    return same_link("/ns/mnt")


def raw_mounts():
    need(libc.syscall(UNSHARE, NEWNS), "unshare")
    return same_link("/ns/mnt")


def net():
    need(libc.unshare(NEWNET), "unshare")
    return same_link("/ns/net")


def raw_net():
    was = os.open("/proc/self/ns/net", os.O_RDONLY)
    need(libc.unshare(NEWNET), "unshare")
    need(libc.syscall(SETNS, was, 0), "setns")
    return same_link("/ns/net")


def directory():
    need(libc.unshare(FS), "unshare")
    os.chdir("/tmp")
    return same_link("/cwd")


def root():
    os.chroot("/tmp")
    return same_link("/root")


# One that allows everything, and is for the calling thread.
ALLOW = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
PROGRAM = struct.pack("HxxxxxxQ", 1, ctypes.addressof(ALLOW))


def filtered():
    return lambda: all(x == ["2"] for x in of_threads("Seccomp"))


def filter_by_prctl():
    need(libc.prctl(22, 2, PROGRAM, 0, 0), "PR_SET_SECCOMP")
    return filtered()


def filter_by_call():
    need(libc.syscall(SECCOMP, 1, 0, PROGRAM), "seccomp")
    return filtered()


def several():
    """Of several threads only the calling one gives something up, and the library's is as before:
    it must not work on with what one of them has left."""
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    await_threads(3)
    need(libc.prctl(38, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    await_threads(3)
    return lambda: sorted(of_threads("NoNewPrivs")) == [["0"], ["0"], ["1"]]


# ---- a connection that is closed before, with bytes that nobody has read ----
LAST = 100000


def reader():
    s = socket.create_connection(("127.0.0.1", port))
    for _ in range(20000):
        s.sendall(s.recv(1))
    sys.stdin.buffer.read(1)
    if where == "by_child":
        sys.exit(int(subprocess.run(["wc", "-c"], stdin=s, stdout=subprocess.PIPE).stdout) != LAST)
    n = 0
    while d := s.recv(65536):
        n += len(d)
    sys.exit(n != LAST)


def closed(gives_up=filter_by_prctl, how="itself"):
    l = socket.create_server(("127.0.0.1", 0))
    r = subprocess.Popen([sys.executable, "-S", "-E", __file__, str(l.getsockname()[1]), "reader",
                          how], stdin=subprocess.PIPE)
    s, _ = l.accept()
    for _ in range(20000):
        s.sendall(b"x")
        s.recv(1)
    s.sendall(bytes(LAST))
    s.close()
    kept = gives_up()
    r.stdin.write(b"x")
    r.stdin.flush()
    if r.wait(10):
        sys.exit("what was sent before close() did not come, or no end after it")
    return kept


def lost():
    """A thread could be made a moment before, and cannot any more: what was closed is on TCP, for a
    reader that needs it there, and what is open goes on."""
    def no_more():
        libc.threads_left(1)
        need(libc.prctl(38, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
        return lambda: len(threads()) == 1
    return closed(no_more, "by_child")


def failing():
    """Nothing that fails, or takes nothing, may touch the library's threads; where /proc does not
    count them, they end to be counted."""
    fd, bad = os.open("/", os.O_RDONLY), ctypes.c_void_p(8)
    before = ours()
    must_fail(libc.prctl(38, 2, 0, 0, 0))
    must_fail(libc.prctl(24, 4000, 0, 0, 0))
    must_fail(libc.prctl(47, 3, 4000, 0, 0))
    must_fail(libc.syscall(CAPSET, bad, bad))
    must_fail(libc.syscall(446, fd, 0))
    must_fail(libc.syscall(KEYCTL, 1, bad))
    must_fail(libc.syscall(SETGROUPS, 1 << 30, bad))
    must_fail(libc.syscall(SECCOMP, 1, 0, None))
    need(libc.syscall(SETRESUID, -1, 1001, -1), "setresuid")
    need(libc.syscall(SETRESUID, -1, 0, -1), "setresuid")
    if before != ours() and not where:
        sys.exit("calls that took nothing had another thread made")
    return lambda: True


def talk():
    for i in range(200):
        c.sendall(bytes([i]) * 3000)
        n = 0
        while n < 3000:
            d = c.recv(3000 - n)
            if not d or d != bytes([i]) * len(d):
                sys.exit("wrong bytes, or an end")
            n += len(d)


def anew():
    """The library's thread has what we have."""
    need(libc.prctl(38, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    await_threads(2)


def await_threads(n):
    end = time.monotonic() + 5
    while len(threads()) < n and time.monotonic() < end:
        talk()


if how == "reader":
    reader()
c = socket.create_connection(("127.0.0.1", port))
if where == "no-proc":
    need(libc.unshare(NEWNS), "unshare")
    need(libc.mount(b"none", b"/", None, 0x44000, None), "mount")  # MS_REC | MS_PRIVATE
    need(libc.mount(b"none", b"/proc", b"tmpfs", 0, None), "mount")
await_threads(2)
talk()
if len(threads()) < 2:
    sys.exit("the library has no thread")
if where == "no-root":
    os.mkdir("empty")
    os.chroot("empty")
    os.chdir("/")
kept = globals()[how]()
for i in range(20):
    talk()
    if not kept():
        sys.exit("a thread has kept what was given up")
print("%d threads" % len(threads()))
