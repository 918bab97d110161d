/*
 * patience.h - how long calls wait, all together, for peers that do not end what they have
 * begun.
 *
 * A call that must not block waits all the same for what a peer has promised to do at once: the
 * end of a rewind, of a copy out of our memory (PATIENCE_CALL). What must be on TCP for a call
 * of the kernel's waits longer (PATIENCE_FALLBACK), but not much longer where that call is none
 * of this connection's own: the start of a program, the passing of a descriptor, an epoll
 * instance in another (PATIENCE_START). A peer that never does it holds up a thread, and with it
 * all other connections that this serves. So what was waited in vain is taken from a store, for
 * each of the three one for our own user and root and one for each other user (and one for the
 * other hosts), which fills up again by a twentieth of the time that goes by. Who has a link
 * more, or a process more, gets hardly more of it.
 *
 * Any thread, no locks.
 */
#ifndef RDMASHIM_PATIENCE_H
#define RDMASHIM_PATIENCE_H

#include <stdint.h>

struct link;

/* So long at most, and never longer than `most`, may be waited for the peer of that link now. NULL:
 * it is not known whose the other end is. The link does not go meanwhile (link_read_enter()). */
enum patience { PATIENCE_CALL, PATIENCE_FALLBACK, PATIENCE_START, PATIENCES };
uint64_t patience_ns(enum patience for_, const struct link *l, uint64_t most);
/* So long was waited, and for nothing. */
void patience_spent(enum patience for_, const struct link *l, uint64_t ns);

#endif
