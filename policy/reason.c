/*
 * reason.c - names, texts and remedies of enum reason, out of reason.def. Constant data only.
 */
#include "stat.h"

static const struct {
	const char *name, *text, *remedy;
} reasons[] = {
#define REASON(id, name, what, remedy) [REASON_##id] = { name, what, remedy },
#include "reason.def"
#undef REASON
};

_Static_assert(REASON_COUNT <= 64, "stat_header.reasons has 64 places: make it longer and raise STAT_VERSION");

const char *reason_name(unsigned r)
{
	return r < REASON_COUNT ? reasons[r].name : "?";
}

const char *reason_text(unsigned r)
{
	return r < REASON_COUNT ? reasons[r].text : "?";
}

const char *reason_remedy(unsigned r)
{
	return r < REASON_COUNT ? reasons[r].remedy : "?";
}
