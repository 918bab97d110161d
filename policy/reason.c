/*
 * reason.c - names, texts and remedies of enum reason and enum stat_event_kind, out of
 * reason.def and event.def. Constant data only.
 */
#include "stat.h"

static const struct {
	const char *name, *text, *remedy;
} reasons[] = {
#define REASON(id, name, what, remedy) [REASON_##id] = { name, what, remedy },
#include "reason.def"
#undef REASON
};

_Static_assert(REASON_COUNT <= STAT_REASONS,
	       "more reasons than places: raise STAT_REASONS, and STAT_VERSION");

const char *stat_mode_name(unsigned m)
{
	static const char *const names[STAT_MODES] = { "off", "on", "bad" };

	return m < STAT_MODES ? names[m] : "?";
}

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

static const struct {
	const char *name, *text;
} events[] = {
#define EVENT(id, name, text) [EVENT_##id] = { name, text },
#include "event.def"
#undef EVENT
};

_Static_assert(EVENT_COUNT <= 256,
	       "an event's kind has 8 bits: change STAT_EVENT_WHAT and raise STAT_VERSION");

const char *event_name(unsigned e)
{
	return e < EVENT_COUNT ? events[e].name : "?";
}

const char *event_text(unsigned e)
{
	return e < EVENT_COUNT ? events[e].text : "?";
}
