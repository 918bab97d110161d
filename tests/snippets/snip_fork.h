/*
 * snip_fork.h - a child, as a snippet makes one.
 */
#include "snip.h"

static pid_t start(void)
{
	fflush(stdout);
	return fork();
}
static void end(void)
{
	fflush(stdout);
	_exit(0);
}
