/*
 * lies_path.h - the scenarios on the path, in shared memory; and another user.
 * Part of peer.c, which says what a scenario is.
 */
#ifndef LIES_PATH_H
#define LIES_PATH_H

#include "lies_link.h"
#include "lies_memory.h"
#include "lies_linger.h"
#include "lies_stuck.h"

/* ---- on the path: lies in shared memory ---- */

static struct ring_shared *mine(struct peer *h) { return &h->a.slot[h->slot].dir[h->a.me]; }
static struct ring_shared *theirs(struct peer *h) { return &h->a.slot[h->slot].dir[!h->a.me]; }

static void lying_wr(uint64_t by, bool rings)
{
	struct peer h;

	get_path(&h);
	put(&h, "hello", 5);
	nap(20);
	atomic_store(&mine(&h)->wr, h.tx.wr + by + (rings ? h.tx.size : 0));
	ring_all(&h);
	must_lose(&h, "wr");
}

static void wr_jumps(void) { lying_wr(1ull << 40, false); }
static void wr_beyond(void) { lying_wr(1, true); }

/* The large ring takes no more than its size either, and what is in it before it was written is
 * the liar's own loss. */
static void large_beyond(void)
{
	struct peer h;

	get_path(&h);
	put(&h, "hello", 5);
	nap(20);
	atomic_store(&mine(&h)->large, (uint32_t)h.tx.large_size);
	put(&h, "small", 5);
	nap(20);
	/* all of it was read, if it is one that reads */
	atomic_store(&mine(&h)->wr, h.tx.wr + h.tx.large_size + 1);
	ring_all(&h);
	must_lose(&h, "wr beyond the large ring");
}

/* Nothing to read is not looked at: only a victim that looks must see it, the others just get
 * nothing. */
static void wr_back(void)
{
	struct peer h;

	get_path(&h);
	put(&h, "hello", 5);
	nap(10);
	for (int i = 1; i < 6; i++) {
		atomic_store(&mine(&h)->wr, h.tx.wr - (uint64_t)i);
		ring_all(&h);
		nap(1);
	}
}

/* Credit for what was never sent. Told when the victim looks: something must make it send. */
static void rd_beyond(void)
{
	struct peer h;

	get_path(&h);
	atomic_store(&theirs(&h)->rd, h.rx.wr + 100000);
	for (int i = 0; i < 40; i++) {
		put(&h, "0123456789", 10);
		atomic_store(&theirs(&h)->rd, h.rx.wr + (1ull << 40));
		nap(1);
	}
}

static void header_garbage(void)
{
	struct peer h;

	for (size_t i = 0; i < ODDS; i++) {
		get_path(&h);
		atomic_store(&mine(&h)->final, i == 1	? h.tx.wr - 1
					       : i == 2 ? h.tx.wr + 3
							: odd[i]);
		atomic_store(&mine(&h)->epoch, odd[i]);
		atomic_store(&mine(&h)->cut, odd[ODDS - 1 - i]);
		put(&h, "abc", 3);
		nap(5);
		if (i % 2)
			close(h.ctl);
		if (i % 3 == 0)
			close(h.tcp);
	}
}

static void masks(void)
{
	struct peer h;

	get_path(&h);
	for (int i = 0; i < 50; i++) {
		memset(h.a.side, 0xff, 2 * sizeof *h.a.side);
		memset(h.a.slot[h.slot].side, 0xff, sizeof h.a.slot[h.slot].side);
		for (uint32_t s = 0; s < h.a.slots; s++)
			atomic_store(&h.a.slot[s].dir[0].tx_want, ~0u),
				atomic_store(&h.a.slot[s].dir[1].tx_want, ~0u);
		put(&h, "0123456789", 10);
		nap(1);
	}
	memset(h.a.side, 0xff, 2 * sizeof *h.a.side);
	ring_all(&h);
}

static void frozen_beyond(void)
{
	struct peer h;

	get_path(&h);
	put(&h, "0123456789", 10);
	nap(20);
	take(&h);
	/* the victim may have sent more meanwhile */
	say_cut(&h, CUT_MSG_FROZEN, h.rx_epoch, h.rx.rd + (1 << 30));
	must_lose(&h, "FROZEN beyond what was sent");
}

/* Less than was consumed: bytes that the victim may no longer have. */
static void frozen_below(void)
{
	struct peer h;

	get_path(&h);
	for (int i = 0; i < 10; i++) {
		put(&h, "0123456789", 10);
		nap(3);
		take(&h);
	}
	say_cut(&h, CUT_MSG_FROZEN, h.rx_epoch, 0);
	put(&h, "0123456789", 10);
}

static void back_early(void)
{
	struct peer h;

	get_path(&h);
	say_cut(&h, CUT_MSG_BACK, h.tx_epoch, 0);
	must_lose(&h, "BACK below what was consumed");
	close(h.tcp);
	get_path(&h);
	say_cut(&h, CUT_MSG_BACK, h.tx_epoch, 1ull << 50);
	put(&h, "abc", 3);
}

/* What is said to be under way is counted for who asks (the victim's FIONREAD): never more than a
 * ring takes beside what is here. */
static void counts_lie(void)
{
	struct ctl_msg m;
	struct peer h;

	get_path(&h);		/* more in the ring than there can be, while it is frozen */
	say_cut(&h, CUT_MSG_REWIND, h.tx_epoch, 0);
	nap(20);
	atomic_store(&mine(&h)->wr, h.tx.wr + (1ull << 40));
	ring_all(&h);
	nap(50);
	say_cut(&h, CUT_MSG_BACK, h.tx_epoch, h.tx.wr + (1ull << 40));
	nap(50);
	close(h.tcp);
	get_path(&h);		/* more is said to be sent again than was there */
	say_cut(&h, CUT_MSG_REWIND, h.tx_epoch, 0);
	nap(20);
	put(&h, "abc", 3);
	nap(50);
	say_cut(&h, CUT_MSG_BACK, h.tx_epoch, 1ull << 50);
	send(h.tcp, "abc", 3, MSG_NOSIGNAL);
	nap(50);
	close(h.tcp);
	get_bound(&h);		/* more on TCP before the ring */
	say_cut(&h, CUT_MSG_ARM, 1, 0);
	while (hear_type(&h, CTL_CUT, &m, 1000) && m.index != CUT_MSG_ARMED)
		if (m.index == CUT_MSG_ARM)
			say_cut(&h, CUT_MSG_ARMED, m.epoch, 0);
	ring_tx_open(&h.tx, 1, 1ull << 40);
	say_cut(&h, CUT_MSG_CUT, 1, 1ull << 40);
	put(&h, "abc", 3);
	nap(50);
	say_cut(&h, CUT_MSG_REWIND, 1, 0);
	nap(50);
	atomic_store(&mine(&h)->final, h.tx.wr);
	ring_all(&h);
	nap(50);
}

/* REWIND, and then none of what was promised. */
static void rewind_and_leave(void)
{
	struct peer h;

	get_path(&h);
	put(&h, "abc", 3);
	say_cut(&h, CUT_MSG_REWIND, h.tx_epoch, 0);
	nap(20);
	put(&h, "def", 3);
	say_cut(&h, CUT_MSG_BACK, h.tx_epoch, 0);
	if (send(h.tcp, "0123456789", 10, MSG_NOSIGNAL) < 0)
		return;
}

static void close_control(void)
{
	struct peer h;

	for (int i = 0; i < 6; i++) {
		if (i < 2)
			get_bound(&h);
		else
			get_path(&h);
		if (i & 1)
			say_cut(&h, i < 2 ? CUT_MSG_ARM : CUT_MSG_REWIND, i < 2 ? 1 : h.tx_epoch,
				0);
		if (i >= 4)
			shutdown(h.ctl, SHUT_WR);
		else
			close(h.ctl);
		if (i == 3 && send(h.tcp, "0123456789", 10, MSG_NOSIGNAL) < 0)
			continue;
	}
}

/* TCP ends under the path. */
static void tcp_ends(void)
{
	struct linger hard = { 1, 0 };
	struct peer h;

	for (int i = 0; i < 4; i++) {
		get_path(&h);
		put(&h, "abc", 3);
		if (i & 1) {
			setsockopt(h.tcp, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
			close(h.tcp);
		} else {
			shutdown(h.tcp, SHUT_WR);
		}
		put(&h, "def", 3);
		if (i & 2)
			close(h.ctl);
		nap(5);
	}
}

/* Never reads what the victim echoes into the ring. */
static void never_reads(void)
{
	struct peer h;
	char buf[8192] = { 1 };
	int64_t end = now_ms() + 400;

	get_path(&h);
	while (now_ms() < end) {
		put(&h, buf, sizeof buf);
		nap(1);
	}
}

/* Everything at random while bytes flow both ways. */
static void fuzz(void)
{
	int64_t end = now_ms() + 2000;
	struct peer h;

	while (now_ms() < end) {
		bool wild = rnd() & 1;	/* else the cursors stay credible for longer */

		get_path(&h);
		for (int i = 0; i < 400 && now_ms() < end; i++) {
			uint64_t at = rnd() % (h.a.slots * sizeof *h.a.slot / 8);
			_Atomic uint64_t *w =
				wild ? (_Atomic uint64_t *)h.a.slot + at
				     : (_Atomic uint64_t *)&h.a.slot[h.slot].side[rnd() & 1] +
						rnd() % 2;
			char buf[64];

			switch (rnd() % 8) {
			case 0:
				atomic_store(w, rnd());
				break;
			case 1:
				atomic_fetch_xor(w, 1ull << rnd() % 64);
				break;
			case 2:
				atomic_store((_Atomic uint64_t *)h.a.side +
						     rnd() % (2 * sizeof *h.a.side / 8),
					     rnd());
				break;
			case 3:
				if (wild)
					atomic_store(rnd() & 1 ? &mine(&h)->wr : &theirs(&h)->rd,
						     h.tx.wr + rnd() % 70000);
				break;
			case 4:
				say_cut(&h, 1 + (unsigned)(rnd() % 7),
					h.tx_epoch + (uint32_t)(rnd() % 2), h.tx.wr - rnd() % 20);
				break;
			default:
				memset(buf, (int)rnd(), sizeof buf);
				put(&h, buf, 1 + rnd() % sizeof buf);
				take(&h);
			}
			ring_all(&h);
			if (rnd() % 16 == 0 && hear(&h, &(struct ctl_msg){ 0 }, 0) < 0)
				break;
		}
		close(h.tcp);
		close(h.ctl);
		segment_unmap(&h.a);
		for (int i = 0; i < BELL_MAX; i++)
			if (h.bell[i] >= 0)
				close(h.bell[i]);
		if (h.name >= 0)
			close(h.name);
	}
}
static void fuzz2(void) { fuzz(); }

/* ---- another user, whom the policy names ---- */

/* Nobody of that user owns the other end, so nothing of the victim's may come to the discovery
 * socket: its socket first of all. */
static void squats(void)
{
	struct ctl_msg m;
	struct peer h;
	int fd;

	peer_take(&h, listener);
	become_other();
	open_name(&h);
	for (int64_t end = now_ms() + 1500; now_ms() < end;) {
		int r;

		if (!readable(h.name, 200))
			continue;
		h.ctl = accept4(h.name, NULL, NULL, SOCK_CLOEXEC);
		r = hear(&h, &m, 200);
		if (r == 1 && !segment_create(&h.a, 16, 65536, 0, &fd)) {
			say(&h, record(CTL_WELCOME, 0, 0, 0, 0), fd);
			close(fd);
		}
		while (r == 1) {
			if (m.type == CTL_BIND && h.got_fd >= 0)
				broken("the victim handed its TCP socket to another user's "
				       "process");
			r = hear(&h, &m, 300);
		}
		close(h.ctl);
	}
	no_peeking();
}

/* Silences every ring for the victim, and so those of its honest peers too. Goes on until it is
 * killed. */
static void thief(void)
{
	static const struct itimerspec never;
	struct ctl_msg m;
	struct peer h;
	int n = 0;

	become_other();
	get_path(&h);
	if (fork()) {
		must_go_on(20);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		for (int b = 0; b < BELL_MAX; b++)
			if (h.bell[b] >= 0)
				timerfd_settime(h.bell[b], 0, &never, NULL);
		if (++n % 64 == 0 && hear(&h, &m, 0) < 0)
			_exit(0);
	}
}

/* A true link with another user's process: only that one's connections may be offered on it. */
static void offered(void)
{
	struct ctl_msg m;
	struct peer h;
	int64_t end;
	int r;

	become_other();
	get_bound(&h);
	for (end = now_ms() + 3000; now_ms() < end;) {
		r = hear(&h, &m, 100);
		if (r < 0)
			broken("link closed");
		if (r != 1)
			continue;
		if (m.type == CTL_BIND &&
		    (m.tuple.pport == honest_port || m.tuple.lport == honest_port))
			broken("the victim handed the socket of a foreign connection to another "
			       "user's process");
		if (m.type == CTL_BIND)
			say(&h, record(CTL_NOT_MINE, m.slot, 6, 0, 0), -1);
	}
}

#endif
