/*
 * patience.h - how long calls wait, all together, for peers that do not finish what they have
 * begun.
 *
 * A call that must not block still waits for what a peer has promised to do at once: the end of a
 * rewind, or of a copy out of our memory (PATIENCE_CALL). A call that needs the connection on TCP
 * waits longer (PATIENCE_FALLBACK). It waits not much longer if it is not a call on this
 * connection: the start of a program, the passing of a descriptor, an epoll instance in another one
 * (PATIENCE_START). exec() loses what is not on TCP by then. So for our own user's processes it
 * waits as long as they may take, whatever they have spent (PATIENCE_EXEC). A peer that never
 * finishes holds up a thread, and with it all other connections that this thread serves.
 *
 * Observes: the time waited in vain for each user's processes; whether a link had such a wait;
 *   since when the link exists.
 * Decides: how long a call may wait now. It takes that time from an allowance, which refills by a
 *   twentieth of the time that passes. For each of the four purposes there is one allowance for our
 *   own user and root, one for other hosts, and one for each other user. With a new link, a user's
 *   allowance for START begins at a tenth of its size: its process may have come just to hold us
 *   up. An honest process that stands still, because it is traced or has no CPU, mostly has had its
 *   link for longer.
 * Bounds: the sizes of the allowances (patience.c). One more link, or process, gets hardly more
 *   time: a moment for each, which an honest one needs in a crowd. Other users are told apart up to
 *   16. Those whose allowance is full again need no row. More users that spend share one allowance.
 * Switched off: without `peer_users` there are links with our own user and root only. When the
 *   allowance runs out, a call that must not block finds nothing, and others fail. docs/limits.md
 *   says what that costs if a child or the next program has the connection.
 * Shown: the log, "does not end a rewind".
 * Tested by users that spend, and on recorded waits for a peer that has a fiftieth of a CPU:
 *   tests/unit/test_patience.c.
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
