/*
 * rdmastat_options.c - words of a command line for all commands: the next option, its value, and
 * complaints.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "policy/words.h"
#include "ground/rdmastat.h"

void complain(const char *fmt, ...)
{
	va_list ap;

	fputs("rdmastat: ", stderr);
	va_start(ap, fmt);
	print_foreign(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

bool replaceable(const char *path)
{
	struct stat st;

	if (stat(path, &st) || S_ISREG(st.st_mode))
		return true;
	complain("%s is not a regular file; name one", path);
	return false;
}

static int unknown_option(const char *word, const struct opt *opts, size_t n)
{
	const char *names[32], *guess;
	size_t i, len = strcspn(word, "=");

	for (i = 0; i < n && i < 32; i++)
		names[i] = opts[i].name;
	/* cppcheck-suppress uninitvar; i of them are set */
	guess = len > 2 ? suggest_word(word + 2, len - 2, names, i) : NULL;
	if (guess)
		complain("unknown option %s; did you mean --%s?", word, guess);
	else
		complain("unknown option %s; rdmastat --help lists them", word);
	return -2;
}

static int find_option(const char *word, const struct opt *opts, size_t n)
{
	size_t i, len = strcspn(word, "=");

	for (i = 0; i < n; i++) {
		if (word[1] != '-' && opts[i].letter && opts[i].letter == word[1])
			return (int)i;
		if (word[1] == '-' && strlen(opts[i].name) == len - 2 &&
		    !strncmp(opts[i].name, word + 2, len - 2))
			return (int)i;
	}
	return -1;
}

int opt_next(struct args *a, const struct opt *opts, size_t n, const char **value)
{
	const char *word = a->argc ? a->argv[0] : "", *inside;
	int i;

	if (word[0] != '-' || !word[1])
		return -1;
	a->argc--;
	a->argv++;
	if (!strcmp(word, "--"))
		return -1;
	i = find_option(word, opts, n);
	if (i < 0)
		return unknown_option(word, opts, n);
	/* the value in the same word: --name=value or -wVALUE */
	inside = word[1] == '-' ? strchr(word, '=') : word[2] ? word + 1 : NULL;
	if (!opts[i].arg) {
		if (!inside)
			return i;
		complain("%s: --%s takes no value; give options one by one", word, opts[i].name);
		return -2;
	}
	if (inside) {
		*value = inside + 1;
		return i;
	}
	if (!a->argc) {
		complain("%s needs a value: --%s %s", word, opts[i].name, opts[i].arg);
		return -2;
	}
	*value = a->argv[0];
	a->argc--;
	a->argv++;
	return i;
}

void opt_print(const struct opt *opts, size_t n)
{
	char buf[64];
	size_t i;

	for (i = 0; i < n; i++) {
		snprintf(buf, sizeof(buf), "--%s%s%s", opts[i].name, opts[i].arg ? " " : "",
			 opts[i].arg ? opts[i].arg : "");
		if (opts[i].letter)
			printf("  -%c, %-22s %s\n", opts[i].letter, buf, opts[i].help);
		else
			printf("      %-22s %s\n", buf, opts[i].help);
	}
}

bool opt_number(const char *s, uint64_t min, uint64_t max, const char *what, uint64_t *ret)
{
	bool over;
	size_t n = parse_digits(s, strlen(s), ret, &over);

	if (n && !s[n] && !over && *ret >= min && *ret <= max)
		return true;
	complain("%s: %s is not a whole number from %llu to %llu", what, s, (unsigned long long)min,
		 (unsigned long long)max);
	return false;
}

bool opt_directory(const char *dir, const char *what)
{
	struct stat st;

	if (!stat(dir, &st) && S_ISDIR(st.st_mode))
		return true;
	complain("%s: %s: %s", what, dir, strerror(stat(dir, &st) ? errno : ENOTDIR));
	return false;
}
