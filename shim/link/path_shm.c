/*
 * path_shm.c - the path over memory that two processes of one host share. The acceptor makes a
 * segment, and the connector attaches it. Everything else is done inline (path.h). Locks: none.
 */
#include <errno.h>

#include "base/fdtab.h"
#include "link/link.h"
#include "link/path.h"

static struct link *open_it(int ctl, uid_t uid, pid_t pid, int *ret_fd, enum reason *why)
{
	struct segment a;
	struct link *l;

	if (link_segment(&a, pid, ret_fd)) {
		*why = REASON_NO_MEMORY;
		return NULL;
	}
	l = link_new_with(&path_shm, ctl, &a, uid, pid);
	if (!l) {
		segment_unmap(&a);
		fd_internal_close(*ret_fd);
		*why = REASON_LINK_FULL;
	}
	return l;
}

/* The segment came. */
static void welcomed(struct link *l, const struct ctl_msg *m, int fd)
{
	struct segment a = { 0 };
	int r = fd < 0 ? -EMFILE : segment_attach(&a, fd);

	(void)m;
	if (!r && !link_fits(&a))
		r = -ENOMEM;
	else if (!r)
		r = link_has_segment(l, &a);
	if (!r) {
		link_up(l);
		return;
	}
	segment_unmap(&a);
	link_kill(l, r == -EMFILE ? REASON_NO_FDS :
		     r == -ENOMEM ? REASON_NO_MEMORY : REASON_PROTOCOL);
}

const struct path path_shm = { .kind = PATH_SHM, .open = open_it, .welcomed = welcomed };
