/* path.c - the table of paths. See path.h. No state, no locks. */
#include "link/path.h"

const struct path path_tcp = { .kind = PATH_TCP };

#define PATH(NAME, name, far, unasked, doc) [PATH_##NAME] = &path_##name,
const struct path *const paths[PATH_KINDS] = {
#include "policy/path.def"
};
#undef PATH

const struct path *path_between_hosts(void)
{
	int i = PATH_TCP;

	while (i < PATH_KINDS - 1 && !paths[i]->far)
		i++;
	return paths[i];
}

void path_event(uint32_t watched)
{
	const struct path *p = paths[watched % PATH_KINDS];

	if (p->wire)
		p->wire->event(watched / PATH_KINDS);
}

bool paths_ever(void)
{
	for (int i = 0; i < PATH_KINDS; i++)
		if (paths[i]->wire && paths[i]->wire->ever())
			return true;
	return false;
}

void paths_after_fork(void)
{
	for (int i = 0; i < PATH_KINDS; i++)
		if (paths[i]->wire)
			paths[i]->wire->forked();
}
