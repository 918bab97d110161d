/*
 * discovery_ctl.h - between search.c, which searches, search_result.c, which hears what becomes of
 * it, and discovery_ctl.c, which speaks over links. Background thread only.
 */
#ifndef RDMASHIM_DISCOVERY_CTL_H
#define RDMASHIM_DISCOVERY_CTL_H

#include "conn/stream_int.h"

/* ---- discovery_ctl.c ---- */
/* Asks for a slot of the link. 0: an answer will come (RV_ASKED). -EAGAIN: the stream may not
 * ride it, it is full, or cannot be asked now. Or -errno: it will not be bound. `end`: who has
 * the other end, of a connection on this host. */
struct identity;
int rv_ask(struct stream *s, struct link *l, const struct identity *end);
/* Does a process of `uid` hold the other end, as far as the kernel says, and may he pass us
 * descriptors? Takes note of one that does not. */
bool rv_owned_by(struct stream *s, const struct identity *end, uid_t uid);
/* a record without a socket */
void rv_say(struct link *l, unsigned type, uint32_t slot, uint32_t index);

/* ---- search_ends.c ---- */
/* Asks the kernel for both addresses and the options. 0 or -errno. Takes rcv.lock. */
int rv_read_names(struct stream *s);
/* Is our end's name below the other's? */
bool rv_comes_first(const struct stream *s);

/* ---- search_result.c: what becomes of the search ---- */
extern unsigned rv_names_open;		/* discovery sockets that are open; ... */
extern unsigned rv_client_names;	/* ... of these: be_asked_too() */
int rv_name_open(struct stream *s);	/* 0, -EAGAIN, -EADDRINUSE, -errno */
/* The paths by which the policy lets the stream leave TCP, bit per enum path_kind. */
uint32_t rv_paths_allowed(struct stream *s);
uint64_t rv_retry_us(struct stream *s);		/* until a path that was lost is sought again */
uint64_t rv_backoff(unsigned tries);
bool rv_many_found(uint64_t now);		/* in the last second: a crowd */
enum reason rv_reason_of(int err);		/* why a search ends by that -errno */
void rv_from_the_first_link(struct stream *s);	/* all links are asked once more */
bool rv_allowed(struct stream *s, enum path_kind path);	/* by the policy, now */
void rv_name_close(struct stream *s);
void rv_found(struct stream *s);		/* it has its slot */
/* not on that link */
void rv_refused(struct stream *s, const struct link *l, enum reason why);
void rv_orphaned(struct link *l);		/* those who asked there search again */
/* The link is up, or will not be: those who waited for it look again. Until then they are left
 * alone, who may be thousands. */
void rv_hello_settled(const struct link *l);
void rv_failed(struct stream *s, enum reason why, bool for_good);

#endif
