/*
 * tool.h - for targets that read what rdmastat reads: nothing goes to the terminal, complaints
 * are counted, stdin is the input and stdout is memory.
 */
#ifndef FUZZ_TOOL_H
#define FUZZ_TOOL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ground/rdmastat.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static unsigned complaints;

void complain(const char *fmt, ...)
{
	char buf[4096];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	complaints++;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	stderr = fopen("/dev/null", "w");	/* libFuzzer has taken its own before */
	return stderr ? 0 : 1;
}

/* What rdmastat would have read from stdin, and printed; free(said). */
static char *said;
static size_t said_len;

static __attribute__((unused)) void streams_open(const void *data, size_t n)
{
	said = NULL;
	stdin = n ? fmemopen((void *)(uintptr_t)data, n, "r") : fopen("/dev/null", "r");
	stdout = open_memstream(&said, &said_len);
	if (!stdin || !stdout)
		abort();
}

static __attribute__((unused)) void streams_close(void)
{
	fclose(stdin);
	if (fclose(stdout))
		abort();
}

/* What goes to a terminal, or into a document: lines of printable ASCII. */
static __attribute__((unused)) void printable(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] != '\n' && (s[i] < 0x20 || s[i] > 0x7e))
			abort();
}

#endif
