/*
 * fallback_while.c - fallback for the time of a call that may yet fail: one that cannot succeed
 * must change nothing for good.
 *
 * The stream is held by nobody else: this thread stands in its holders as if it were about to
 * have a child (holders.h), so it goes to TCP and is not cut until the call is over. Locks:
 * none.
 */
#include "process/fork.h"

#include "base/shim.h"
#include "conn/holders.h"
#include "conn/stream_recv.h"
#include "conn/stream_send.h"
#include "conn/stream_slab.h"
#include "policy/log.h"
#include "process/children.h"

static int my_token(void) { return -(int)sys(SYS_gettid); }

/* False: it cannot be held so, and goes for good. So it is, too, for who has interrupted a call of
 * this thread that has let a child hold it: the first to end would take back both. */
static bool begin(struct stream *s, int token)
{
	struct holders *c;

	if (stream_tcp_only(s) || atomic_load(&s->fork_cut))
		return false;
	c = holders_of(s);
	if (!c || holders_has(c, token))
		return false;
	hold_over(s);
	holders_enter(c, token);
	hold_over(s);		/* since then */
	if (!holders_has(c, token))	/* crowded */
		return false;
	if (atomic_load(&s->link))
		fork_ask_fallback(s);
	return true;
}

static void over(struct stream *s, int token)
{
	struct holders *c = atomic_load(&s->others.holders);

	if (!c || !holders_has(c, token))
		return;
	holders_swap(c, token, 0);
	fork_less_shared(s);
}

static int fall_back(struct stream *s, enum reason r, uint64_t end)
{
	int token = my_token(), ret;

	if (!atomic_load(&s->connected) || stream_tcp_only(s))
		return 0;
	if (!begin(s, token))
		return stream_fall_back_until(s, r, end);
	ret = fork_wait_fallback(s, end);
	if (ret)
		over(s, token);
	return ret;
}

int stream_fallback_while(struct stream *s, enum reason r, bool nonblock)
{
	enum patience for_ = nonblock ? PATIENCE_CALL : PATIENCE_FALLBACK;
	uint64_t start = now_us(), end;
	int ret;

	end = nonblock ? start + stream_patience(s, for_, STREAM_PATIENCE_NS) / 1000
		       : stream_fallback_by(s, for_, start);
	ret = fall_back(s, r, end);
	if (!ret)
		return 0;
	stream_in_vain(s, for_, (now_us() - start) * 1000);
	return nonblock ? -EAGAIN : ret;
}

/* What a dead peer's ring still has no way leads to TCP: an error, not an end in its place. */
int stream_fallback_to_read(struct stream *s, enum reason r, bool nonblock)
{
	int ret = stream_fallback_while(s, r, nonblock);

	return ret || stream_tcp_only(s) || !atomic_load(&s->peer_gone) ? ret
									: stream_fall_back(s, r);
}

/* What says that the program meant it, and may ask again at once. */
static bool not_now(int err)
{
	return err == EAGAIN || err == EINTR || err == EINPROGRESS || err == ENOMEM ||
	       err == ENOBUFS;
}

/* It was on TCP for the call; until all of it is may take as long as the peer likes. */
static void stays(struct stream *s, enum reason r)
{
	uint64_t start = now_us();

	if (!atomic_load_explicit(&s->nonblock, memory_order_relaxed)) {
		(void)tcp_only_now(s, r);
	} else if (atomic_load(&s->connected) || !stream_make_tcp_only(s, r)) {
		if (stream_fall_back_until(s, r, start + stream_patience(s, PATIENCE_CALL,
								       STREAM_PATIENCE_NS) / 1000))
			stream_in_vain(s, PATIENCE_CALL, (now_us() - start) * 1000);
	}
}

void stream_fallback_over(struct stream *s, uint32_t gen, bool failed, enum reason r)
{
	int e = errno;

	if (atomic_load(&s->gen) == gen && !stream_tcp_only(s) && (!failed || not_now(e)))
		stays(s, r);
	over(s, my_token());
	errno = e;
}

/* Only once for each: exec() is tried in each directory in which the program may be. */
static enum patience for_exec(const struct stream *s)
{
	return atomic_load(&s->fallback.late) == FALLBACK_LATE_AT_EXEC ? PATIENCE_START
		: PATIENCE_EXEC;
}

void streams_fallback_while(bool (*which)(struct stream *s, int fd), enum reason r)
{
	uint64_t since = now_us();
	int top = fdtab_top(), token = my_token();
	uint32_t n = streams_top();

	/* all go at once, and are waited for together */
	for (int fd = fdtab_next(0); fd < top; fd = fdtab_next(fd + 1)) {
		struct stream *s = fdtab_stream(fd);

		if (s && !stream_tcp_only(s) && (!which || which(s, fd)) && !begin(s, token) &&
		    stream_fall_back_since(s, r, since))
			log_line(1, "fd %d: bytes are still on the fast path", fd);
	}
	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);
		struct holders *c = atomic_load(&s->others.holders);
		enum patience for_ = which ? for_exec(s) : PATIENCE_START;

		if (!c || !holders_has(c, token))
			continue;
		if (fork_wait_fallback(s, stream_fallback_by(s, for_, since))) {
			stream_not_on_tcp(s, for_, since);
			if (which)
				atomic_store(&s->fallback.late, FALLBACK_LATE_AT_EXEC);
			log_line(1, "fd %d: bytes are still on the fast path", atomic_load(&s->fd));
		} else if (which) {	/* who comes after us would answer nobody */
			holders_say_on_tcp(c);
		}
	}
}

void streams_fallback_over(void)
{
	uint32_t n = streams_top();
	int token = my_token();

	for (uint32_t i = 0; i < n; i++)
		over(stream_at(i), token);
}
