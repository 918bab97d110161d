/*
 * stream_learn.c - the stream's part in learning its ISNs (netns/learn.h): which send is used for
 * it, and what its waits ask when the kernel says ERR.
 *
 * Who: the background thread requests it, and the program's next send does it.
 * Lock: snd.lock; for waits rcv.lock, which holds off close().
 */
#include "base/shim.h"
#include "conn/stream_learn.h"
#include "conn/stream_life.h"

_Atomic bool stream_learned_any;

void stream_learn_want(struct stream *s)
{
	atomic_fetch_or(&s->learns, LEARNS_WANT);
}

#define LEAVE_MS 200	/* for an acknowledgement */

/* The lock is given between two looks; and nothing else is done to the connection. */
void stream_learn_leave(struct stream *s, uint32_t gen)
{
	struct timespec ms = { 0, 1000000 };
	bool left = false;
	int fd;

	for (int i = 0; !left; i++) {
		stream_lock(s);
		fd = atomic_load(&s->fd);
		left = atomic_load(&s->gen) != gen || fd < 0 || i == LEAVE_MS ||
		       !stream_learned(s) || !learn_may_come(&s->learn, fd, s->role == ROLE_CLIENT);
		if (left && atomic_load(&s->gen) == gen) {
			if (fd >= 0 && stream_learned(s))
				learn_leave(&s->learn, fd);
			stream_learn_unfilter(s);
			atomic_fetch_or(&s->learns, LEARNS_LEFT);
			atomic_fetch_and(&s->learns, (uint8_t)~(LEARNS_WANT | LEARNS_HEADERS));
		}
		stream_unlock(s);
		/* A nap: that its header is in the queue rings for all who poll the socket. */
		if (!left)
			sys(SYS_nanosleep, &ms, NULL);
	}
}

/* Somebody may find a header in the error queue who cannot know what it is; or the program's own
 * sends would make of this one something else. */
static bool unfit(struct stream *s, int fd)
{
	return atomic_load(&s->learns) & LEARNS_LEFT || fork_shared(s) ||
	       atomic_load(&s->others.passed) || atomic_load(&stream_past_us) ||
	       stream_pollers->blind(s) || learn_disturbs(fd);
}

bool stream_learn_silent(struct stream *s)
{
	bool is;

	stream_lock(s);
	is = atomic_load(&s->fd) >= 0 && atomic_load(&s->learn.state) == LEARN_NOT &&
	     !unfit(s, atomic_load(&s->fd));
	stream_unlock(s);
	return is;
}

/* Said before it is looked whether another process has the socket; who gives it to one looks behind
 * that (hold_over()). */
static int begin_check(struct stream *s, int fd, uint32_t claim, uint64_t now)
{
	atomic_fetch_or(&s->learns, LEARNS_CHECKS);
	if (!unfit(s, fd) && learn_check_begin(&s->learn, fd, claim, now))
		return 0;
	atomic_fetch_and(&s->learns, (uint8_t)~LEARNS_CHECKS);
	return -ETIMEDOUT;
}

static int check(struct stream *s, int fd, uint32_t peer, uint32_t claim, uint64_t now)
{
	struct learn *l = &s->learn;
	int r;

	if (fd < 0 || atomic_load(&s->dead) || atomic_load(&l->state) != LEARN_NOT ||
	    unfit(s, fd) || atomic_load(&s->plain.tx))
		r = -ETIMEDOUT;
	else if (atomic_load(&s->learns) & LEARNS_CHECKS)
		r = l->claim == claim ? learn_check_look(l, fd, now) : -1;
	else
		return begin_check(s, fd, claim, now);
	if (r)
		stream_learn_unfilter(s);
	if (r == 1) {
		l->own = claim;
		l->peer = peer;
		atomic_store(&l->state, LEARN_KNOWN);
		stream_learn_over(s);
	}
	return r;
}

int stream_learn_check(struct stream *s, uint32_t peer, uint32_t claim, uint64_t now)
{
	int r;

	stream_lock(s);
	r = check(s, atomic_load(&s->fd), peer, claim, now);
	stream_unlock(s);
	return r;
}

static bool settled(const struct stream *s)
{
	uint8_t state = atomic_load(&s->learn.state);

	return state == LEARN_KNOWN || state == LEARN_FAILED;
}

ssize_t stream_learn_send(struct stream *s, int fd, const void *p, size_t n, int flags)
{
	ssize_t r = 0;

	stream_learn_may_send(s);
	if (!n || atomic_load(&s->plain.tx) || !learn_settle(&s->learn, fd))
		return 0;
	if (!settled(s) && unfit(s, fd))
		atomic_store(&s->learn.state, LEARN_FAILED);
	if (!settled(s)) {
		atomic_store(&stream_learned_any, true);
		atomic_fetch_or(&s->learns, LEARNS_HEADERS);
		r = learn_send(&s->learn, fd, p, n, flags);
	}
	if (settled(s))
		stream_learn_over(s);
	if (r >= 0)
		bg_look(s);
	return r == -ENODATA ? 0 : r;
}

bool stream_learn_settle(struct stream *s)
{
	bool over = true;

	lock_take(&s->snd.lock);
	if (atomic_load(&s->fd) >= 0)
		over = learn_settle(&s->learn, atomic_load(&s->fd));
	lock_give(&s->snd.lock);
	return over;
}

bool stream_true_error(struct stream *s, uint32_t gen)
{
	bool r = true;
	int fd;

	lock_take(&s->rcv.lock);		/* the fd stays this socket */
	fd = atomic_load(&s->fd);
	if (atomic_load(&s->gen) == gen && fd >= 0 && stream_learned(s))
		r = learn_true_error(&s->learn, fd);
	lock_give(&s->rcv.lock);
	return r;
}
