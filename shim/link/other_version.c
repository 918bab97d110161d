/*
 * other_version.c - which processes have a library whose version does not fit ours.
 *
 * Owns what is remembered of them. That is not kept for long, since exec may load another library
 *   into the same process. All of it is what the other end said, so it decides about that end's own
 *   connections only.
 */
#include "link/other_version.h"

#include <string.h>

#include "base/procs.h"
#include "base/shim.h"
#include "base/sys.h"
#include "link/link.h"
#include "policy/log.h"
#include "policy/words.h"

#define OTHERS  64
#define OTHER_US 60000000

static struct other { pid_t pid; uint64_t start, until_us; uint32_t version; } others[OTHERS];
static unsigned next;

_Static_assert(sizeof(struct ctl_tuple) == VERSION_LEN, "the build takes the tuple's place");
_Static_assert(SEGMENT_VERSION == 8, "HELLO tells one version of all: raise CTL_VERSION, too");

void version_hello(struct ctl_msg *m)
{
	char build[VERSION_LEN] = "";

	m->type = CTL_HELLO;
	m->version = CTL_VERSION;
	fmt_string(build, sizeof build, "%s", rdmashim_version);
	memcpy(&m->tuple, build, sizeof build);
}

bool version_other(pid_t pid, uint32_t *ret)
{
	uint64_t now = now_us(), start = 0;

	for (unsigned i = 0; pid > 0 && i < OTHERS; i++) {
		if (others[i].pid != pid || others[i].until_us < now)
			continue;
		start = start ? start : process_start(pid);
		if (others[i].start == start) {
			*ret = others[i].version;
			return true;
		}
	}
	return false;
}

static void remember(pid_t pid, uint32_t version)
{
	if (pid > 0)		/* of another pid namespace: which is not known */
		others[next++ % OTHERS] =
			(struct other){ pid, process_start(pid), now_us() + OTHER_US, version };
}

void version_heard(const struct ctl_msg *m, pid_t pid)
{
	char build[VERSION_LEN];
	uint32_t known;

	memcpy(build, &m->tuple, sizeof build);
	build[sizeof build - 1] = 0;
	make_printable(build, strlen(build), '?', ASCII_ONLY);
	if (version_other(pid, &known))		/* told, and believed, once */
		return;
	log_line(1, "pid %d has another version of the library, %u, build %s; "
		    "here it is %u, build %s: its connections stay on TCP",
		 pid, m->version, build[0] ? build : "not known", CTL_VERSION, rdmashim_version);
	remember(pid, m->version);
}

void version_silent(pid_t pid)
{
	uint32_t known;

	if (version_other(pid, &known))
		return;
	log_line(1, "pid %d has an older version of the library; "
		    "here it is %u, build %s: its connections stay on TCP",
		 pid, CTL_VERSION, rdmashim_version);
	remember(pid, 0);
}
