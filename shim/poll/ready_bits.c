/*
 * ready_bits.c - the events of one registration: those of the kernel and of the stream's paths, and
 * which of them the kernel shall report.
 *
 * Kernel interest of a cut stream: IN and OUT only while the kernel may answer for them. If it may
 * answer for neither, the rest is edge-triggered, because the home socket's RDHUP or HUP may stay
 * up while the path still has bytes. The interest is corrected in the application's own threads
 * only, in waits and in epoll_ctl.
 *
 * Locks: all functions are called with e->lock held.
 */
#include "poll/ready_int.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

uint32_t item_wanted(const struct epitem *it, const struct stream_view *v)
{
	uint32_t inout, w;

	if (!v->cut)
		return it->events;
	inout = it->disabled ? 0 : it->events & EV_INOUT & ev_wide(v->kern);
	/* ONESHOT is ours to do while cut: the kernel would go silent after an event that we do
	 * not report. */
	w = it->events & ~(EV_INOUT | EV_BANDS | (uint32_t)EPOLLONESHOT | EPOLLEXCLUSIVE);
	if (!inout)
		return w | EPOLLRDHUP | (uint32_t)EPOLLET;
	/* Level-triggered RDHUP would return at once for ever; once is enough. */
	if (it->home_seen & EPOLLRDHUP)
		w &= ~(uint32_t)EPOLLRDHUP;
	else
		w |= EPOLLRDHUP;
	return w | inout;
}

/* e->lock held, in a thread of the application. */
void item_resync(struct epitem *it, const struct stream_view *v)
{
	uint32_t want = item_wanted(it, v);

	if (want == it->kern_events || it->orphan)
		return;
	/* A MOD would enable what has fired: leave that to the application's next MOD. */
	if (it->disabled && (!v->cut || (it->kern_events & EPOLLONESHOT)))
		return;
	item_tell_kernel(it, want);
}

/* What the kernel would say of `bits` now. An fd that was closed, or is another file's by now,
 * says nothing. */
uint32_t item_kernel_bits(const struct epitem *it, uint32_t bits)
{
	struct pollfd p = { .fd = it->fd, .events = (short)bits };
	struct timespec zero = { 0, 0 };

	if (it->orphan || (it->s && fdtab_stream(it->fd) != it->s) ||
	    sys(SYS_ppoll, &p, 1, &zero, NULL, 8) < 1 || p.revents & POLLNVAL)
		return 0;
	return (uint16_t)p.revents;
}

/*
 * The peer has closed, all was read, and an edge has said so: what the kernel's own FIN adds
 * when it comes, or a change of the registration, is no change. Nor is anything after an edge that
 * told of a hang-up, once all that came before is where it is looked for.
 */
static bool at_end(const struct epitem *it, const struct stream_view *v, uint32_t bits)
{
	if (!(it->events & EPOLLET))
		return false;
	return (!(bits & EV_OUT) && stream_at_end(it->s)) ||
	       (bits & EPOLLHUP && (!v->cut || atomic_load(&it->s->peer_gone)));
}

bool item_said(const struct epitem *it, const struct stream_view *v, uint32_t bits)
{
	return at_end(it, v, bits) && !(bits & ~it->told);
}

/* The same, and notes what is said now. */
bool item_said_before(struct epitem *it, const struct stream_view *v, uint32_t bits)
{
	if (!at_end(it, v, bits))
		return false;
	if (!(bits & ~it->told))
		return true;
	it->told |= bits;
	return false;
}

uint32_t item_own_bits(struct epitem *it, struct stream_view *v)
{
	uint32_t bits, kern;

	if (it->disabled)
		return 0;
	if (!v->cut) {	/* an edge follows by itself, when the kernel has the bytes */
		bits = it->events & EPOLLET ? 0 : ev_wide(v->coming) & it->events;
		return bits ? bits | item_kernel_bits(it, it->events & 0xffff) : 0;
	}
	if ((it->events & EV_OUT) && !((v->synth | v->kern | v->coming) & EPOLLOUT)) {
		stream_want_room(it->s);
		stream_told_full(it->s);
		*v = stream_view(it->s);
	}
	bits = ev_wide(v->synth | v->coming) & (it->events | EV_ALWAYS);
	kern = it->events & EV_INOUT & ev_wide(v->kern);
	/* Told whole: with what the kernel has for the direction that is still its own. */
	if (bits && kern & ~bits)
		bits |= item_kernel_bits(it, kern) & kern;
	return bits;
}

/* A stream that is back for good needs no bell. e->lock held. */
void item_maybe_disarm(struct epitem *it, const struct stream_view *v)
{
	if (it->armed && !v->cut && stream_tcp_only(it->s) && (it->kern_events == it->events ||
							     it->orphan))
		item_disarm(it);
}

/* More came into the ring while bytes that TCP carried are still unread: an edge, as for any
 * arrival. */
uint32_t item_arrival_behind(struct epitem *it, const struct stream_view *v)
{
	int q = 0;

	if (!v->behind || it->disabled || !(it->events & EPOLLET) || !(it->events & EV_IN))
		return 0;
	sys(SYS_ioctl, atomic_load(&it->s->fd), SIOCINQ, &q);
	return q > 0 ? EV_IN & it->events : 0;
}
