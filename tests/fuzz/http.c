/*
 * http.c - any bytes as the head of a request to `rdmastat prometheus --listen`. Who is answered
 * has named an address, localhost or a name of ours, by a second reading that is not the
 * program's.
 *
 * LINK: tools/rdmastat/commands/rdmastat_http_head.c
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "commands/rdmastat_http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The first Host line, if there is one before the empty line; in small letters, without blanks. */
static bool host_line(const char *s, char *host, size_t size)
{
	size_t n = 0;

	for (s = strchr(s, '\n'); s; s = strchr(s + 1, '\n')) {
		if (s[1] == '\n' || (s[1] == '\r' && s[2] == '\n'))
			return false;
		if (strncasecmp(s + 1, "host:", 5))
			continue;
		for (s += 6; *s && *s != '\n' && n + 1 < size; s++)
			if (!strchr(" \t\r", *s))
				host[n++] = *s >= 'A' && *s <= 'Z' ? (char)(*s + 32) : *s;
		host[n] = '\0';
		return true;
	}
	return false;
}

static bool ours(char *host)
{
	char *port = strrchr(host, ':');

	if (host[strspn(host, "0123456789.:")] == '\0' || *host == '[')
		return true;
	if (port)
		*port = '\0';
	return !strcmp(host, "localhost") || !strcmp(host, "node") ||
	       (strlen(host) >= 8 && !strcmp(host + strlen(host) - 8, ".example"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char *head = malloc(n + !n), *text = malloc(n + 1), host[512];
	bool only_head = false, whole;
	enum http_status status;

	memcpy(text, data, n);
	text[n] = '\0';
	memcpy(head, data, n);
	whole = http_complete(head, n);
	if (whole) {
		status = http_judge(head, n, "Node,*.EXAMPLE", &only_head);
		if (status > HTTP_OTHER_HOST)
			abort();
		if (status == HTTP_OK && (strncmp(text, "GET ", 4) && strncmp(text, "HEAD ", 5)))
			abort();
		if (status == HTTP_OK && host_line(text, host, sizeof(host)) && !ours(host))
			abort();
	}
	free(head);
	free(text);
	return 0;
}
