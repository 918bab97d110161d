/*
 * rdmastat_past.c - see rdmastat_past.h.
 */
#include <stdio.h>
#include <time.h>

#include "ground/rdmastat_past.h"

static const char *rule_place(const struct stat_moment *m, const struct policy *policy,
			      const char *policy_file, char *buf, size_t len)
{
	if (!m->arg || m->arg > UINT32_MAX)
		return "no rule (the default)";
	return place_text(policy, policy_file, (uint32_t)m->arg, buf, len);
}

const char *past_text(const struct stat_moment *m, const struct policy *policy,
		      const char *policy_file, char *buf, size_t len)
{
	char place[320];

	switch (m->kind) {
	case EVENT_REASON:
		if (m->reason == REASON_NONE)
			snprintf(buf, len, "nothing speaks against a fast path");
		else if (m->reason == REASON_POLICY)
			snprintf(buf, len, "on TCP: policy, by %s",
				 rule_place(m, policy, policy_file, place, sizeof(place)));
		else
			snprintf(buf, len, "on TCP: %s, %s", reason_name(m->reason),
				 reason_text(m->reason));
		break;
	case EVENT_RULE:
		snprintf(buf, len, "%s: decided by %s", event_text(m->kind),
			 rule_place(m, policy, policy_file, place, sizeof(place)));
		break;
	case EVENT_SEARCH:
		snprintf(buf, len, "%s, %s", event_text(m->kind),
			 m->arg ? "on another host" : "on this host");
		break;
	case EVENT_LINKED:
		snprintf(buf, len, "%s: process %llu", event_text(m->kind),
			 (unsigned long long)m->arg);
		break;
	case EVENT_VERSION:
		if (m->arg >> 32)
			snprintf(buf, len, "%s: %u there, %u here", event_text(m->kind),
				 (unsigned)(m->arg >> 32), (unsigned)m->arg);
		else
			snprintf(buf, len, "%s: an older one there, %u here", event_text(m->kind),
				 (unsigned)m->arg);
		break;
	case EVENT_FULL:
		snprintf(buf, len, "%s for %.1f ms: %s", event_text(m->kind),
			 (double)(m->arg >> 1) / 1000,
			 m->arg & 1 ? "the other end waits for room, too" : "nobody read");
		break;
	case EVENT_PATIENCE:
		snprintf(buf, len, "%s: %.1f ms", event_text(m->kind), (double)m->arg / 1000);
		break;
	case EVENT_POLLER_GONE:
		snprintf(buf, len, "%s, and needs %llu idle rounds to leave it again",
			 event_text(m->kind), (unsigned long long)m->arg);
		break;
	case EVENT_CROWDED:
	case EVENT_NOT_TAKEN:
		snprintf(buf, len, "%s, the next %llu", event_text(m->kind),
			 (unsigned long long)m->arg);
		break;
	case EVENT_CUT_TX:
	case EVENT_CUT_RX:
		snprintf(buf, len, "%s at byte %llu", event_text(m->kind),
			 (unsigned long long)m->arg);
		break;
	default:
		snprintf(buf, len, "%s", event_text(m->kind));
	}
	return buf;
}

const char *past_time(const struct stat_moment *m, char *buf, size_t len)
{
	time_t s = (time_t)(m->when / 1000000);
	struct tm tm;

	if (!m->when || !localtime_r(&s, &tm))
		snprintf(buf, len, "-");
	else
		snprintf(buf, len, "%02d:%02d:%02d.%06u", tm.tm_hour, tm.tm_min, tm.tm_sec,
			 (unsigned)(m->when % 1000000));
	return buf;
}

json_object *past_json(const struct stat_past *p, const struct policy *policy,
		       const char *policy_file)
{
	json_object *a = json_object_new_array();
	char buf[512];
	size_t i;

	for (i = 0; i < p->n; i++) {
		const struct stat_moment *m = &p->at[i];
		json_object *o = json_object_new_object();

		json_add(o, "time_us", json_num(m->when));
		json_add(o, "event", json_str(event_name(m->kind)));
		json_add(o, "reason",
			 m->kind == EVENT_REASON ? json_str(reason_name(m->reason)) : NULL);
		json_add(o, "arg", json_num(m->arg));
		json_add(o, "text", json_str(past_text(m, policy, policy_file, buf, sizeof(buf))));
		json_object_array_add(a, o);
	}
	return a;
}
