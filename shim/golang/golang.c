/*
 * golang.c - see golang.h. Locks: none; the constructor calls, once.
 */
#include "golang/golang_int.h"

#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include <gnu/libc-version.h>

#include "base/shim.h"
#include "golang/golang.h"
#include "policy/log.h"
#include "policy/words.h"

/* ---- is this the start of the program? ---- */

static bool has(const struct dl_phdr_info *o, const void *p)
{
	for (int i = 0; i < o->dlpi_phnum; i++)
		if (o->dlpi_phdr[i].p_type == PT_LOAD &&
		    (uintptr_t)p - (o->dlpi_addr + o->dlpi_phdr[i].p_vaddr) <
			    o->dlpi_phdr[i].p_memsz)
			return true;
	return false;
}

/* 1: ours comes before libc, as what is preloaded; 2: behind it, as what a running program loads,
 * in which Go has threads. */
static int which_first(struct dl_phdr_info *o, size_t size, void *arg)
{
	(void)size, (void)arg;
	return has(o, (const void *)which_first) ? 1
	       : has(o, (const void *)gnu_get_libc_version) ? 2 : 0;
}

/* ---- the whole ---- */

static const char *attempt(struct golang_program *p)
{
	const char *why = "";
	int r = golang_look(p, &why);

	if (r == -ENOENT)
		return NULL;
	if (r)
		return why;
	if (dl_iterate_phdr(which_first, NULL) != 1)
		return "the library came when it was running";
	if (!golang_calls_prepare())
		return "no room for a thread's own stack";
	if (golang_patch(p))
		return "its pages may not be replaced";
	golang_calls_begin();
	return "";
}

bool golang_begin(void)
{
	const char *asked = getenv("RDMASHIM_GO"), *why;
	struct golang_program p = { .version = "" };

	if (asked && !strcmp(asked, "off"))
		return false;
	why = attempt(&p);
	if (!why)
		return false;
	if (*why) {
		fmt_string(shim_go, sizeof shim_go, "%s%suntouched: %s", p.version,
			   *p.version ? ", " : "", why);
		log_line(LOG_LEVEL_WARN, "a Go program, %s", shim_go);
	} else {
		fmt_string(shim_go, sizeof shim_go, "%s, %u stubs", p.version, p.sites);
		log_line(LOG_LEVEL_PATH, "a Go program, %s", shim_go);
	}
	return true;
}
