"""Rules of the environment of the cut/rewind machine that the simulator does not model, each taken out of the code in turn:
the named test must then fail. (The rules of the machine itself: build/sim --rules.)

NAME, file, text as it is, text without the rule, test as TESTS= takes it or a shell command, what goes wrong without it."""

APP = "SHIM=build/librdmashim.so bash tests/apps/"

MUTANTS = [
    ("OFFSET_STILL", "shim/stream_cut.c",
     "if (sent && a.bytes_acked == b.bytes_acked)", "if (sent)",
     "acks that arrive between the two looks are counted twice",
     APP + "random-cut.sh 5", 2),
    ("OFFSET_SYN", "shim/stream_cut.c",
     "(client ? 1 : 0) + q", "(client ? 0 : 0) + q",
     "the SYN of the connecting end counts as a byte",
     APP + "sockbench.sh", 1),
    ("CAP_AT_S", "shim/stream_io.c",
     "r = kernel_recv(fd, c, tcp, (flags & ~MSG_WAITALL) | MSG_DONTWAIT);",
     "r = kernel_recv(fd, c, SIZE_MAX, (flags & ~MSG_WAITALL) | MSG_DONTWAIT);",
     "a read takes bytes that TCP carried after the rewind before those of the ring",
     APP + "random-cut.sh 5", 2),
    ("NO_SHORT_READ", "shim/stream_io.c",
     "		if (!c->left)\n			return (long)done;\n		/* go on without a short read */",
     "		return (long)done;",
     "an edge-triggered reader takes a short read for an empty socket",
     APP + "semantics.sh", 1),
    ("EDGE_BEHIND", "shim/ready_epoll.c",
     "bits = item_own_bits(it, &v) | arrival_behind(it, &v);", "bits = item_own_bits(it, &v);",
     "no edge for bytes that come while older ones are unread",
     APP + "epoll-modes.sh arrivals arrivals.fresh", 1),
    ("MASK_KERNEL", "shim/ready_epoll.c",
     "inout = it->disabled ? 0 : it->events & EV_INOUT & ev_wide(v->kern);",
     "inout = it->disabled ? 0 : it->events & EV_INOUT;",
     "the home socket is always writable, and says so",
     APP + "epoll-modes.sh level edge", 1),
    ("OVERFLOW_UID", "shim/identity.c",
     "id.uid != uid || uid == OVERFLOW_UID", "id.uid != uid",
     "all users that a user namespace does not map look alike",
     "TESTS=unit/test_identity", 1),
    ("COOKIE", "shim/identity.c",
     "id.cookie != cookie || ", "",
     "a connection with the same addresses elsewhere is taken for this one",
     "TESTS=unit/test_identity", 1),
    ("GONE_FD", "shim/stream_io.c",
     "		if (fdtab_stream(fd) != s || atomic_load_explicit(&s->gen, memory_order_relaxed) != gen) {\n"
     "			lock_give(&s->rx_lock);\n			return done ? (ssize_t)done : -EBADF;\n		}\n		nonblock",
     "		(void)gen;\n		nonblock",
     "a call that slept goes on with an fd that is another file by now",
     APP + "epoll-modes.sh close_while_waiting", 3),
    ("OVERFLOW", "shim/stream_wait.c",
     "} else if (now - *since >= (s->rv_net ? shim_tunables()->rdma_overflow : shim_tunables()->overflow)) {", "} else if (0) {",
     "two programs that write before they read hang",
     APP + "bigfirst.sh", 1),
]
