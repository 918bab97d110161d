/*
 * across.h - the search across network namespaces of one host (docs/namespaces.md), as far as the
 * policy's cross_ns_dir and key_file add to it. Background thread only.
 */
#ifndef RDMASHIM_ACROSS_H
#define RDMASHIM_ACROSS_H

#include "conn/stream.h"
#include "link/link.h"

struct ctl_msg;

#define ACROSS_MAC  32
#define ACROSS_NAME 16		/* bytes of a mac that are a name */

/* ---- across_name.c. isn: the client's, the server's ---- */
/* 0; -ENOENT: the policy names no directory; -EPERM: it may not be used, there is no key, or the
 * kernel does not name processes. */
int across_possible(void);
/* Binds `fd` to the connection's name, or connects it. 0 or -errno: -EADDRINUSE: two have wanted
 * the name, and now both know; of the connect -ECONNREFUSED: nobody is there. */
int across_name_open(int fd, const uint32_t isn[2]);
int across_name_connect(int fd, const uint32_t isn[2]);
bool across_name_taken(const uint32_t isn[2]);	/* another one has wanted it */
void across_name_close(const uint32_t isn[2]);
/* What names this process, and the one that has the other end of a socket of AF_UNIX: the inode of
 * its pidfd; 0: the kernel has no such number. The pidfd, ours to close, or -errno. */
uint64_t across_self(void);
int across_process(int sock, uint64_t *ret_inode);
/* False: there is no key. `client`, `server`: the processes. */
bool across_make_mac(const uint32_t isn[2], bool by_server, uint64_t client, uint64_t server,
		     uint8_t mac[ACROSS_MAC]);
bool across_mac_right(const uint32_t isn[2], bool by_server, uint64_t client, uint64_t server,
		      const uint8_t mac[ACROSS_MAC]);

/* ---- across.c: a stream's search ---- */
/* Its other end is not in this network namespace. Is it looked for in others? REASON_NONE, or why
 * not. */
enum reason across_why_not(struct stream *s, uint32_t paths);
void across_start(struct stream *s);
/* Before each step: are its ISNs known? 1; 0: not yet, look at search.due_us; or the search has
 * ended: -1. */
int across_ready(struct stream *s, uint64_t now);
void across_failed(struct stream *s, enum reason why);
/* Both ISNs, the client's first. */
void across_isns(const struct stream *s, uint32_t isn[2]);
/* Connects to the name. 1: a link is being made and the stream waits for it; 0: nobody is there;
 * -errno, -EAGAIN: not now. */
int across_connect(struct stream *s);

/* ---- what is said on a link, or before it ---- */
/* The server's first word to who has connected to the name of s. False: there is no key. */
bool across_greet(struct stream *s, int sock);
/* The client's answer to that: is it right? */
bool across_proven(struct stream *s, int sock, const struct ctl_msg *m);
/* The client has got the server's first word on a link that it makes: HELLO, or the end. */
bool across_greeted(struct link *l, const struct ctl_msg *m);
/* The link is up: the other end may ask our kernel. False: it is killed. */
bool across_pass_diag(struct link *l);
/* It came. True: it was kept. */
bool across_got_diag(struct link *l, int fd);
/* Its end is made across namespaces by a process that the kernel names. */
void across_link(struct link *l, int sock);
/* Fills in what BIND and BOUND say besides. 0 or -errno. rcv.lock held. */
int across_tell(struct stream *s, struct ctl_msg *m);
/* Our stream with the ISNs of a BIND; NULL: *why. */
struct stream *across_find(const struct ctl_msg *m, enum reason *why);
/* Is it the other end, and one connection? REASON_NONE, or why not. */
enum reason across_is_one(const struct link *l, struct stream *s, const struct ctl_msg *m, int fd);
/* Has the other end said FIN, as its kernel knows? */
bool across_peer_closing(struct stream *s);

#endif
