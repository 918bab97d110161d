/*
 * statfile_user.c - root's rdmastat opens what a user has named, or put into a directory of his
 * own, with that user's rights. One thread, no locks; the real and the saved user stay root, so
 * that neither can the user signal or trace us, nor does a file system of his own (FUSE) answer us.
 */
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ground/statfile.h"

#define NOBODYS_GROUP 65534

static struct {
	bool taken;
	gid_t gid, *group;
	int ngroups;
} own;

static bool remember_groups(void)
{
	own.gid = getegid();
	own.ngroups = getgroups(0, NULL);
	own.group = own.ngroups < 0 ? NULL : malloc(((size_t)own.ngroups + 1) * sizeof(*own.group));
	return own.group && getgroups(own.ngroups, own.group) == own.ngroups;
}

bool user_rights(uid_t uid)
{
	if (geteuid() || !uid || own.taken)
		return true;
	own.taken = remember_groups();
	if (own.taken && !setgroups(0, NULL) && !setegid(NOBODYS_GROUP) && !seteuid(uid))
		return true;
	own_rights();
	return false;
}

void own_rights(void)
{
	if (own.taken && (seteuid(0) || setegid(own.gid) ||
			  setgroups((size_t)own.ngroups, own.group))) {
		fputs("cannot become root again\n", stderr);
		_exit(1);
	}
	free(own.group);
	own.group = NULL;
	own.taken = false;
}
