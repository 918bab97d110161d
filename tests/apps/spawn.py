# spawn.py CHILD PORT - Python's ways to give a connection to a child: subprocess (vfork),
# os.posix_spawn, os.system. CHILD is the program of spawn.c; it and this script verify every
# byte. The other end, at PORT, is `spawn echo`.
import os, socket, struct, subprocess, sys

BYTES = 100000
M = (1 << 64) - 1


def pattern(off, n):
    def word(i):
        z = (0x7370 * 0xd1342543de82ef95 + i * 0x9e3779b97f4a7c15) & M
        z = ((z ^ (z >> 30)) * 0xbf58476d1ce4e5b9) & M
        z = ((z ^ (z >> 27)) * 0x94d049bb133111eb) & M
        return z ^ (z >> 31)
    first = off // 8
    b = b"".join(struct.pack("<Q", word(i)) for i in range(first, (off + n) // 8 + 1))
    return b[off - first * 8:][:n]


class Stream:
    def __init__(self, port):
        self.s = socket.create_connection(("127.0.0.1", port))
        self.sent = self.got = 0

    def put(self, n):
        self.s.sendall(pattern(self.sent, n))
        self.sent += n

    def take(self):
        while self.got < self.sent:
            b = self.s.recv(self.sent - self.got)
            assert b and b == pattern(self.got, len(b)), "wrong byte after %d" % self.got
            self.got += len(b)

    def rounds(self, n):
        for _ in range(n):
            self.put(100)
            self.take()

    def args(self, i, o):
        return [child, "child", str(i), str(o), str(self.sent), str(self.got), str(BYTES)]

    def told(self, status):
        assert status == 7, "child: status %r" % status
        self.sent += BYTES
        self.got = self.sent


def popen(c):
    p = subprocess.Popen(c.args(0, 1), stdin=c.s, stdout=c.s)
    c.told(p.wait())


def pass_fds(c):
    fd = c.s.fileno()
    p = subprocess.Popen(c.args(fd, fd), pass_fds=[fd])
    c.told(p.wait())


def preexec(c):     # Python forks then
    p = subprocess.Popen(c.args(0, 1), stdin=c.s, stdout=c.s, preexec_fn=os.getpid)
    c.told(p.wait())


def posix_spawn(c):
    fd = c.s.fileno()
    pid = os.posix_spawn(child, c.args(0, 1), os.environ,
                         file_actions=[(os.POSIX_SPAWN_DUP2, fd, 0), (os.POSIX_SPAWN_DUP2, fd, 1)])
    c.told(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def system(c):
    fd = c.s.fileno()
    os.set_inheritable(fd, True)
    c.told(os.waitstatus_to_exitcode(os.system("%s <&%d 3>&%d" % (" ".join(c.args(0, 3)), fd, fd))))


child = sys.argv[1]
c = Stream(int(sys.argv[2]))
for f in popen, pass_fds, popen, preexec, preexec, posix_spawn, system:
    c.rounds(150)
    c.put(2000)     # comes back while nobody reads
    f(c)
    print(f.__name__, "ok")
c.rounds(150)
