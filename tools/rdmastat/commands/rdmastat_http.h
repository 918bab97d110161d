/*
 * rdmastat_http.h - a small HTTP server for one page, /metrics: who asks gets it, and nobody keeps
 * it from the others.
 */
#ifndef RDMASHIM_RDMASTAT_HTTP_H
#define RDMASHIM_RDMASTAT_HTTP_H

#include <stdbool.h>
#include <stdio.h>

struct http {
	const char *where;		/* [ADDRESS:]PORT */
	const char *hosts;		/* its names besides its addresses, with commas; or NULL */
	unsigned count;			/* stop after so many clients, 0 = never */
	int (*page)(const void *arg, FILE *f);	/* writes the page; not 0: there is none now */
	const void *arg;
};

/* Serves until `count` clients are through. An exit code; after a complaint if it failed. */
int http_serve(const struct http *h);

/* ---- the head of a request (rdmastat_http_head.c): pure functions, on any bytes ---- */

enum http_status {
	HTTP_OK, HTTP_BAD_REQUEST, HTTP_NOT_FOUND, HTTP_BAD_METHOD, HTTP_OTHER_HOST, HTTP_NO_PAGE
};

/* Is it all there, up to the empty line? */
bool http_complete(const char *head, size_t len);
/* What a complete head asks for. *only_head: HEAD, the answer has no body. */
enum http_status http_judge(const char *head, size_t len, const char *hosts, bool *only_head);

#endif
