/*
 * rdmastat_http_head.c - what a request asks for, and of whom. The name of the host is looked at
 * because of browsers: a page from elsewhere whose name was made to mean this machine (DNS
 * rebinding) may read what it is answered, but cannot change the name that the browser sends.
 */
#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "policy/words.h"
#include "commands/rdmastat_http.h"

#define HOST_MAX 255

bool http_complete(const char *head, size_t len)
{
	return memmem(head, len, "\r\n\r\n", 4) || memmem(head, len, "\n\n", 2);
}

/* Names of hosts have no case. */
static void lower(char *to, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] | 0x20) : s[i];
	to[n] = '\0';
}

/* One of the names that the user gave? */
static bool listed(const char *name, const char *hosts)
{
	char word[HOST_MAX + 1];
	size_t n;

	for (; hosts && *hosts; hosts += n + (hosts[n] == ',')) {
		n = strcspn(hosts, ",");
		if (!n || n > HOST_MAX)
			continue;
		lower(word, hosts, n);
		if (glob_match(word, n, name))
			return true;
	}
	return false;
}

/* The value of a Host line, HOST[:PORT]: an address, localhost, or one of `hosts`. */
static bool host_fits(const char *s, size_t len, const char *hosts)
{
	struct in6_addr a6;
	struct in_addr a4;
	char name[HOST_MAX + 1];
	bool bracket = len && *s == '[';
	const char *end = bracket ? memchr(s, ']', len) : memchr(s, ':', len);
	size_t n = end ? (size_t)(end - s) : len, rest;

	if (!n || n > HOST_MAX || (bracket && !end))
		return false;
	lower(name, s, n);
	rest = n + bracket;
	if (rest < len && s[rest++] != ':')
		return false;
	for (; rest < len; rest++)
		if (s[rest] < '0' || s[rest] > '9')
			return false;
	if (bracket)
		return inet_pton(AF_INET6, name + 1, &a6) == 1;
	return inet_pton(AF_INET, name, &a4) == 1 || !strcmp(name, "localhost") ||
	       listed(name, hosts);
}

/* The Host lines up to the empty one: how many there are, and the last one's value. */
static unsigned find_host(const char *line, const char *end, const char **value, size_t *len)
{
	unsigned found = 0;
	const char *stop;

	for (; line < end; line = stop + 1) {
		stop = memchr(line, '\n', (size_t)(end - line));
		if (!stop)
			stop = end;
		if (stop == line || (stop == line + 1 && *line == '\r'))
			break;
		if (stop - line < 5 || strncasecmp(line, "host:", 5))
			continue;
		found++;
		*value = line + 5;
		*len = (size_t)(stop - line - 5);
		while (*len && strchr(" \t", **value)) {
			++*value;
			--*len;
		}
		while (*len && strchr(" \t\r", (*value)[*len - 1]))
			--*len;
	}
	return found;
}

enum http_status http_judge(const char *head, size_t len, const char *hosts, bool *only_head)
{
	const char *end = head + len, *host = NULL;
	const char *line = memchr(head, '\n', len), *path = memchr(head, ' ', len);
	size_t n = 0;
	unsigned found;

	*only_head = len > 5 && !memcmp(head, "HEAD ", 5);
	if (!line || !path || path > line || memchr(head, '\0', len))
		return HTTP_BAD_REQUEST;
	found = find_host(line + 1, end, &host, &n);
	/* 1.0 and earlier knew no Host; no browser leaves it out. */
	if (found > 1 || (!found && memmem(head, (size_t)(line - head), " HTTP/", 6) &&
			  !memmem(head, (size_t)(line - head), " HTTP/1.0", 9)))
		return HTTP_BAD_REQUEST;
	if (found && !host_fits(host, n, hosts))
		return HTTP_OTHER_HOST;
	if (!*only_head && (len < 4 || memcmp(head, "GET ", 4)))
		return HTTP_BAD_METHOD;
	if (end - path < 10 || memcmp(path, " /metrics", 9) || !memchr(" ?\r\n", path[9], 4))
		return HTTP_NOT_FOUND;
	return HTTP_OK;
}
