/*
 * discovery_ctl.h - what three files share: search.c, which searches, search_result.c, which
 * handles the results, and discovery_ctl.c, which speaks over links. Background thread only.
 */
#ifndef RDMASHIM_DISCOVERY_CTL_H
#define RDMASHIM_DISCOVERY_CTL_H

#include "base/shim.h"
#include "conn/stream.h"
#include "discovery/search.h"
#include "link/link.h"
#include "link/path.h"

/* ---- discovery_ctl.c ---- */
/* Asks for a slot of the link. 0: an answer will come (SEARCH_ASKED). -EAGAIN: the stream may not
 * use the link, or the link is full or cannot be asked now. Other -errno: the stream will not be
 * bound. `end`: who has the other end of a connection on this host. */
struct identity;
int search_ask(struct stream *s, struct link *l, const struct identity *end);
/* a record without a socket */
void search_say(struct link *l, unsigned type, uint32_t slot, uint32_t index);

/* ---- bind_proof.c; rcv.lock is taken there, and out_lock under it ---- */
/* Does a process of `uid` hold the other end, as far as the kernel says, and may that user pass us
 * descriptors? Notes a user that does not. */
bool search_owned_by(struct stream *s, const struct identity *end, uid_t uid);
/* BIND or BOUND, with what the peer must know: what the wire's other end does, if it has one, and
 * that the connection is ours. `gen`: of the stream that is meant. 0 or -errno, of those that may
 * pass soon -EAGAIN. */
int search_send_bind(struct link *l, struct stream *s, uint32_t gen, unsigned type, uint32_t slot,
		 uint32_t life);
/* Is `fd`, which came over the link, the other end of s? 0 or -errno. */
int search_proves(const struct link *l, struct stream *s, int fd);
/* Why a stream whose proof is no good is not bound. r: what search_proves() said. */
enum reason search_not_proved(const struct stream *s, int r);
/* Why BOUND, with that descriptor, proves nothing; REASON_NONE: it does. */
enum reason search_unproved(const struct link *l, struct stream *s, const struct ctl_msg *m,
			    int fd);
bool search_same_host(const struct link *l, const struct stream *s);
/* Is the link one that the stream may ride? */
bool search_fits(const struct link *l, const struct stream *s);
/* Between hosts, of a client, whom BOUND told `t`: false, and it is logged: it may be two. */
bool search_one_connection(struct stream *s, const struct ctl_tuple *t);

/* ---- search_ends.c ---- */
/* Asks the kernel for both addresses and the options. 0 or -errno. Takes rcv.lock. */
int search_read_names(struct stream *s);
/* Is our end's name below the other's? */
bool search_comes_first(const struct stream *s);

/* ---- search_result.c: what becomes of the search ---- */
extern unsigned search_names_open;		/* discovery sockets that are open; ... */
extern unsigned search_client_names;	/* ... of these: be_asked_too() */
int search_name_open(struct stream *s);	/* 0, -EAGAIN, -EADDRINUSE, -errno */
/* The paths by which the policy lets the stream leave TCP, bit per enum path_kind. */
uint32_t search_paths_allowed(struct stream *s);
/* until a path that was lost is sought again */
uint64_t search_retry_us(struct stream *s);
uint64_t search_backoff(unsigned tries);
bool search_many_found(uint64_t now);		/* in the last second: a crowd */
enum reason search_reason_of(int err);		/* why a search ends by that -errno */
void search_from_the_first_link(struct stream *s);	/* all links are asked once more */
bool search_allowed(struct stream *s, enum path_kind path);	/* by the policy, now */
void search_name_close(struct stream *s);
void search_found(struct stream *s);		/* it has its slot */
/* not on that link */
void search_refused(struct stream *s, const struct link *l, enum reason why);
void search_orphaned(struct link *l);		/* those who asked there search again */
/* The link is up, or will not be: streams that waited for it look again. Until then they do not
 * look, since they may be thousands. */
void search_hello_settled(const struct link *l);
void search_failed(struct stream *s, enum reason why, bool for_good);

#endif
