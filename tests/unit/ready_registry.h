/*
 * ready_registry.h - a part of test_ready.c: what is refused, and descriptors that are closed.
 */
START_TEST(refusals)
{
	int a, b, p[2], stale[2];

	make();
	a = stream_fd(0, MODE_NEW, &peer);
	b = stream_fd(1, MODE_NEW, &peer);
	ck_assert_int_eq(add(a, EPOLLIN, 7), 0);
	ck_assert_int_eq(add(b, EPOLLIN, 7), 0);
	ck_assert_int_eq(ready_arm(&streams[1]), -EXDEV);
	ck_assert_int_eq(ready_arm(&streams[0]), -EXDEV);
	ck_assert_int_eq(mod(b, EPOLLIN, 8), 0);
	ck_assert_int_eq(ready_arm(&streams[0]), 0);
	/* An fd with the same data that was closed unseen is no obstacle; one that is open is. */
	ck_assert_int_eq(pipe(stale), 0);
	ck_assert_int_eq(add(stale[0], EPOLLIN, 8), 0);
	ck_assert_int_eq(ready_arm(&streams[1]), -EXDEV);
	close(stale[0]);
	ck_assert_int_eq(ready_arm(&streams[1]), 0);
	a = stream_fd(2, MODE_NEW, &peer);
	ck_assert_int_eq(add(a, EPOLLIN, 9), 0);
	/* Cut already when it is added in such a way: back to TCP first. */
	a = stream_fd(3, MODE_ATTACHED, &peer);
	cut(3);
	ck_assert_int_eq(add(a, EPOLLIN, 8), 0);
	ck_assert_int_eq(fakes[3].fell_back, 1);
	ck_assert_int_eq(write(peer, "x", 1), 1);
	EXPECT(EPOLLIN, 8);
	/* Or changed so. */
	b = cut_fd(4, EPOLLIN, 44);
	ck_assert_int_eq(write(peer, "x", 1), 1);
	ck_assert_int_eq(mod(b, EPOLLIN, 9), 0);
	ck_assert_int_eq(fakes[4].fell_back, 1);
	ck_assert_int_eq(look(64), 2);
	/* No bell left. */
	bells_left = 0;
	make();
	a = stream_fd(5, MODE_NEW, &peer);
	ck_assert_int_eq(add(a, EPOLLIN, 1), 0);
	ck_assert_int_eq(ready_arm(&streams[5]), -ENOSPC);
	bells_left = 10;
	ck_assert_int_eq(ready_arm(&streams[5]), 0);
	cut(5);
	/* Waited for through its own fd, by who knows whom. */
	ck_assert_int_eq(pipe(p), 0);
	ready_foreign(e);
	ck_assert_int_eq(fakes[5].fell_back, 1);
	a = stream_fd(6, MODE_NEW, &peer);
	ck_assert_int_eq(add(a, EPOLLIN, 2), 0);
	ck_assert_int_eq(ready_arm(&streams[6]), -EOPNOTSUPP);
}
END_TEST

/* The same calls on an instance of ours and on a plain one give the same errors. */
START_TEST(errors_as_the_kernel)
{
	int raw = epoll_create1(0), file, s;
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 1 };

	make();
	file = open("/proc/self/exe", O_RDONLY);
	s = stream_fd(0, MODE_ATTACHED, &peer);
	const struct { int op, fd; uint32_t events; bool null; } call[] = {
		{ EPOLL_CTL_ADD, s, EPOLLIN, true },		/* EFAULT */
		{ EPOLL_CTL_MOD, s, EPOLLIN, false },		/* ENOENT */
		{ EPOLL_CTL_DEL, s, 0, false },
		{ EPOLL_CTL_ADD, s, EPOLLIN, false },		/* 0 */
		{ EPOLL_CTL_ADD, s, EPOLLIN, false },		/* EEXIST */
		{ EPOLL_CTL_MOD, s, EPOLLOUT, false },
		{ EPOLL_CTL_MOD, s, EPOLLIN | EPOLLEXCLUSIVE, false },	/* EINVAL */
		{ EPOLL_CTL_MOD, s, EPOLLIN, true },
		{ 17, s, EPOLLIN, false },			/* EINVAL */
		{ EPOLL_CTL_ADD, 999, EPOLLIN, false },		/* EBADF */
		{ EPOLL_CTL_MOD, 999, EPOLLIN, false },
		{ EPOLL_CTL_DEL, 999, EPOLLIN, false },
		{ EPOLL_CTL_ADD, file, EPOLLIN, false },	/* EPERM */
		{ EPOLL_CTL_DEL, s, 0, true },			/* 0 */
		{ EPOLL_CTL_DEL, s, 0, true },			/* ENOENT */
	};
	for (int mode = 0; mode < 2; mode++) {
		for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
			int want, r;

			ev.events = call[i].events;
			want = epoll_ctl(raw, call[i].op, call[i].fd, call[i].null ? NULL : &ev)
				       ? -errno
				       : 0;
			r = ready_epoll_ctl(e, ep, call[i].op, call[i].fd,
					    call[i].null ? NULL : &ev);
			ck_assert_msg(r == want, "call %zu mode %d: %d, kernel %d", i, mode, r,
				      want);
		}
		cut(0);		/* and once more */
	}
	ck_assert_int_eq(add(ep, EPOLLIN, 1), -EINVAL);
	ck_assert_int_eq(ready_epoll_wait(e, ep, got, 0, 0, NULL), -EINVAL);
}
END_TEST

START_TEST(registry_grows)
{
	enum { N = 900 };
	int p[2], fd[N];

	make();
	ck_assert_int_eq(pipe(p), 0);
	for (int i = 0; i < N; i++) {
		fd[i] = dup(p[0]);
		ck_assert_int_ge(fd[i], 0);
		ck_assert_int_eq(add(fd[i], EPOLLIN, (uint64_t)i << 32), 0);
	}
	for (int i = 0; i < N; i++) {
		struct epitem *it = item_by_fd(e, fd[i]);
		bool many;

		ck_assert_ptr_nonnull(it);
		ck_assert_uint_eq(it->data, (uint64_t)i << 32);
		ck_assert_ptr_eq(item_by_data(e, (uint64_t)i << 32, &many), it);
		ck_assert(!many);
	}
	for (int i = 0; i < N; i += 2)
		ck_assert_int_eq(ctl(EPOLL_CTL_DEL, fd[i], 0, 0), 0);
	for (int i = 0; i < N; i++)
		ck_assert(!item_by_fd(e, fd[i]) == !(i & 1));
	ck_assert_uint_eq(e->nitems, N / 2);
}
END_TEST

static int late;

/* Another thread closes the number, and the struct becomes another connection's. */
static void struct_used_again(void)
{
	bool ok;

	close(late);
	atomic_fetch_add(&streams[0].gen, 2);
	fdtab_set(late, FD_NONE, NULL, &ok);
	late = eventfd(0, EFD_NONBLOCK);
	fdtab_set(late, FD_NONE, NULL, &ok);
}

/* The same, and the number is taken away just before the kernel's close. */
static void struct_used_before_close(void)
{
	bool ok;

	atomic_fetch_add(&streams[0].gen, 2);
	fdtab_set(late, FD_NONE, NULL, &ok);
}

/* An ADD beside the close of its number leaves nothing: not on the connection that has the
 * struct by then, and not in the kernel. */
START_TEST(added_beside_close)
{
	int other;

	make();
	other = stream_fd(1, MODE_ATTACHED, &peer);
	ck_assert_int_eq(add(other, EPOLLIN, 1), 0);
	late = stream_fd(0, MODE_ATTACHED, &peer);
	on_view = _i ? struct_used_again : struct_used_before_close;
	ck_assert_int_eq(add(late, EPOLLIN, 77), 0);
	ck_assert_ptr_null(streams[0].reg.items);
	ck_assert_uint_eq(streams[0].reg.n, 0);
	ck_assert_int_eq(streams[0].waits_seen, 0);
	ck_assert_uint_eq(streams[0].bells, 0);
	cut(0);
	shows(0, EPOLLIN);
	NOTHING();
	ck_assert_int_eq(epoll_ctl(ep, EPOLL_CTL_DEL, late, NULL), -1);
	ck_assert_int_eq(errno, ENOENT);
	cut(1);
	shows(1, EPOLLIN);
	EXPECT(EPOLLIN, 1);
}
END_TEST

START_TEST(closing)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int a, b, other, pa;
	struct epoll *old;

	make();
	a = cut_fd(0, EPOLLIN, 1);
	pa = peer;
	b = cut_fd(1, EPOLLIN, 2);
	shows(0, EPOLLIN);
	shows(1, EPOLLIN);
	ck_assert_int_eq(look(64), 2);
	/* The file lives on under another number: the registration must go all the same. */
	other = dup(a);
	ready_stream_forget(&streams[0], a, true);
	close(a);
	EXPECT(EPOLLIN, 2);
	ck_assert_ptr_null(streams[0].reg.items);
	ck_assert_uint_eq(streams[0].reg.n, 0);
	ck_assert_uint_eq(streams[0].bells, 0);
	close(pa);		/* HUP */
	usleep(100);		/* a look into the kernel is due */
	EXPECT(EPOLLIN, 2);
	/* One of two fds: the registration stays, the number is free. */
	other = dup(b);
	ready_stream_forget(&streams[1], b, false);
	ck_assert_ptr_null(item_by_fd(e, b));
	EXPECT(EPOLLIN, 2);
	/* The instance goes; its other number keeps it alive first. */
	other = dup(ep);
	ck_assert(ready_epoll_dup(e, ready_epoll_gen(e), ep, other));
	ready_epoll_forget_fd(e, ep, false);
	ready_epoll_forget_fd(e, ep, false);	/* closed by two threads: once */
	/* A copy that was made beside that close is nobody's. */
	ck_assert(!ready_epoll_dup(e, ready_epoll_gen(e), ep, other + 1));
	ck_assert_ptr_null(fdtab_epoll(other + 1));
	ck_assert(!ready_epoll_dup(e, ready_epoll_gen(e) - 1, other, other + 1));
	close(ep);
	ep = other;
	ck_assert_int_eq(e->epfd, other);
	EXPECT(EPOLLIN, 2);
	/* The last: a child may have the kernel's instance still, our bell is not in it. */
	old = e;
	ready_epoll_forget_fd(e, ep, true);
	ck_assert_ptr_null(fdtab_epoll(ep));
	/* nobody uses the kernel's instance by that number meanwhile */
	ck_assert_uint_eq(fdtab_get(ep), FDTAB_CLOSING);
	fdtab_closed(ep);
	ck_assert_uint_eq(fdtab_get(ep), 0);
	ck_assert_ptr_null(streams[1].reg.items);
	ck_assert_int_eq(epoll_ctl(ep, EPOLL_CTL_ADD, bells[0].fd, &ev), 0);
	make();
	ck_assert_ptr_eq(e, old);
	NOTHING();
}
END_TEST
