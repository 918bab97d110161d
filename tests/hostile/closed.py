"""Ends for closed.sh; they know nothing of the library.
	closed.py server PORT N plain|epoll|fork
	    takes N connections, into an epoll instance or not, closes them in any order; or
	    each when it has forked with it. Says how much more memory of its own it has than
	    before, its counter file with it, in KiB: while they were open, and after it; and
	    how much of that is the file's
	closed.py client PORT N
	    another user; has them all at one time, until they are closed
"""
import os, random, resource, select, socket, sys

what, port, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def counters():
    """The counter file's."""
    try:
        return os.stat(f"{os.environ['RDMASHIM_STAT_DIR']}/{os.getpid()}").st_blocks // 2
    except (KeyError, FileNotFoundError):
        return 0


def own():
    with open("/proc/self/status") as f:
        return counters() + sum(int(line.split()[1]) for line in f
                                if line.startswith(("RssAnon:", "RssShmem:")))


if what == "server":
    listener = socket.create_server(("127.0.0.1", port), backlog=4096)
    fds = [0] * n
    listener.accept()[0].close()  # what a first one costs is not counted
    before = own()
    epoll = select.epoll() if sys.argv[4] == "epoll" else None
    for i in range(n):
        fds[i] = listener.accept()[0].detach()
        if epoll:
            epoll.register(fds[i], select.EPOLLIN | select.EPOLLET)
        elif sys.argv[4] == "fork":
            child = os.fork()
            if not child:
                os._exit(0)
            os.close(fds[i])
            os.waitpid(child, 0)
    with_all = own()
    random.shuffle(fds)
    for fd in fds if sys.argv[4] != "fork" else []:
        os.close(fd)
    print(with_all - before, own() - before, counters(), flush=True)
else:
    socket.create_connection(("127.0.0.1", port)).close()  # all of Python that it takes, as root
    os.setgid(1001)
    os.setuid(1001)
    all_ = [socket.create_connection(("127.0.0.1", port)) for _ in range(n)]
    for s in all_:
        s.recv(1)
