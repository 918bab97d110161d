/*
 * patience.h - how long calls wait, all together, for peers that do not end what they have
 * begun.
 *
 * A call that must not block waits all the same for what a peer has promised to do at once: the
 * end of a rewind, of a copy out of our memory (PATIENCE_CALL). What must be on TCP for a call
 * of the kernel's waits longer (PATIENCE_FALLBACK), but not much longer where that call is none
 * of this connection's own: the start of a program, the passing of a descriptor, an epoll
 * instance in another (PATIENCE_START). exec() loses what is not on TCP by then, so it waits as
 * long as our own user's processes may take, whatever they have spent (PATIENCE_EXEC). A peer
 * that never does it holds up a thread, and with it all other connections that this serves.
 *
 * Observes: what was waited in vain, of each user's processes; whether a link had one of those;
 *   since when the link is there.
 * Decides: for how long a call may wait now. A call takes it from a store that fills up by a
 *   twentieth of the time that goes by: for each of the four one for our own user and root, one
 *   for the other hosts, and one for each other user. Whose links are new has a tenth of the
 *   START's, as who just came to hold us up; an honest one's that stands still, because it is
 *   traced or has no CPU, is mostly there for longer.
 * Bounds: the stores' sizes (patience.c). Who has a link more, or a process more, gets hardly more
 *   of it: a moment for each, which an honest one needs in a crowd. Of other users 16 are known
 *   apart, those whose store is full again not at all; more that spend share one store.
 * Switched off: without `peer_users` there are links with our own user and root only. When it runs
 *   out a call that must not block finds nothing, others fail; what that costs where a child or
 *   the next program has the connection says docs/limits.md.
 * Shown: the log, "does not end a rewind". Tested by users that spend, and on recorded waits for a
 *   peer that has a fiftieth of a CPU: tests/unit/test_patience.c.
 *
 * Any thread, no locks.
 */
#ifndef RDMASHIM_PATIENCE_H
#define RDMASHIM_PATIENCE_H

#include <stdint.h>

struct link;

enum patience { PATIENCE_CALL, PATIENCE_FALLBACK, PATIENCE_START, PATIENCE_EXEC, PATIENCES };
/* For how many ns a call may wait now for the peer of that link: at most `most`, and what the store
 * has (its size: 1 s for CALL and 30 s for the others, for other users 80 ms and 1 s). l NULL: it
 * is not known whose the other end is. The link does not go meanwhile (link_read_enter()). */
uint64_t patience_ns(enum patience for_, const struct link *l, uint64_t most);
/* A call waited for `ns` and the peer did not do it: they are taken out of the store. */
void patience_spent(enum patience for_, const struct link *l, uint64_t ns);

#endif
