/*
 * wrap_clone.c - who registers handlers for fork().
 */
#include "libc.h"

extern void *__dso_handle __attribute__((visibility("hidden")));

/* pthread_atfork() is this call, from libc's static part in each library, so its wrapper sees who
 * is the first: also constructors that run before ours, for our symbols come before libc's from
 * the start. */
bool fork_handlers_first(void)
{
	static _Atomic bool begun, there;

	if (!atomic_load(&begun) && shim_wanted() && !atomic_exchange(&begun, true))
		atomic_store(&there, !REAL(__register_atfork)(shim_fork_prepare, shim_fork_parent,
							      shim_fork_child, &__dso_handle));
	return atomic_load(&there);
}

int wrap___register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
			   void *dso)
{
	fork_handlers_first();
	return REAL(__register_atfork)(prepare, parent, child, dso);
}
