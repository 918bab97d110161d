/*
 * findlib.c - see findlib.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arch/arch.h"
#include "findlib.h"

#define NAME "librdmashim.so"

static bool take(const char *path, char *buf, size_t len)
{
	char real[PATH_MAX];

	if (access(path, R_OK) || !realpath(path, real) || strlen(real) >= len)
		return false;
	strcpy(buf, real);
	return true;
}

static bool names_it(const char *word, size_t n)
{
	const char *slash = memrchr(word, '/', n), *base = slash ? slash + 1 : word;

	return (size_t)(word + n - base) >= strlen(NAME) && !strncmp(base, NAME, strlen(NAME));
}

/* The word of a list (by colons or blanks, as ld.so reads it) that names the library. */
static bool in_list(const char *list, char *word, size_t len)
{
	while (list && *list) {
		size_t n = strcspn(list, ": ");

		if (n < len && names_it(list, n)) {
			memcpy(word, list, n);
			word[n] = '\0';
			return true;
		}
		list += n;
		list += strspn(list, ": ");
	}
	return false;
}

bool find_library(char *buf, size_t len)
{
	static const char *const places[] = { "%s/" NAME, "%s/../lib/" NAME,
					      "%s/../lib/" ARCH_TRIPLET "/" NAME,
						      "%s/../lib64/" NAME };
	static const char *const fixed[] = { "/usr/local/lib/" NAME, "/usr/local/lib64/" NAME,
					     "/usr/lib/" ARCH_TRIPLET "/" NAME, "/usr/lib64/" NAME,
						     "/usr/lib/" NAME };
	char self[PATH_MAX], path[PATH_MAX + 64], *slash;
	const char *env = getenv("RDMASHIM_LIB");
	ssize_t n;
	size_t i;

	if (env && *env)
		return take(env, buf, len);
	if (in_list(getenv("LD_PRELOAD"), path, sizeof(path)) && take(path, buf, len))
		return true;
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n > 0) {
		self[n] = '\0';
		slash = strrchr(self, '/');
		if (slash)
			*slash = '\0';
		for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
			snprintf(path, sizeof(path), places[i], self);
			if (take(path, buf, len))
				return true;
		}
	}
	for (i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		if (take(fixed[i], buf, len))
			return true;
	return false;
}

const char *library_missing(void)
{
	static char text[PATH_MAX + 100];
	const char *env = getenv("RDMASHIM_LIB");

	if (!env || !*env)
		return NAME " was not found";
	snprintf(text, sizeof(text), "%s cannot be read: %s", env,
		 access(env, R_OK) ? strerror(errno) : "its path is too long");
	return text;
}

char *preload_with(const char *lib)
{
	const char *old = getenv("LD_PRELOAD");
	char word[PATH_MAX + 64], *s = NULL;

	if (!old || !*old)
		return strdup(lib);
	if (in_list(old, word, sizeof(word)))
		return strdup(old);
	/* at the end: what the user preloads already keeps its place */
	if (asprintf(&s, "%s:%s", old, lib) < 0)
		return NULL;
	return s;
}

char *preload_without(void)
{
	const char *list = getenv("LD_PRELOAD");
	char *s = calloc(1, (list ? strlen(list) : 0) + 2);
	size_t n, at = 0;

	for (; s && list && *list; list += n, list += strspn(list, ": ")) {
		n = strcspn(list, ": ");
		if (names_it(list, n))
			continue;
		if (at)
			s[at++] = ':';
		memcpy(s + at, list, n);
		at += n;
	}
	return s;
}
