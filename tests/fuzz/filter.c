/*
 * filter.c - any text as a filter, up to a NUL, on a connection made of the bytes behind it. A
 * filter is refused with a complaint, or answers as its own negation does not, and as it does
 * when said twice.
 *
 * LINK: tools/rdmastat/ground/rdmastat_filter.c tools/rdmastat/ground/rdmastat_text.c
 */
#include <sys/socket.h>

#include "tool.h"
#include "ground/rdmastat_filter.h"

#define TEXT_MAX 8000

static struct filter *parse(const char *form, const char *text)
{
	static char buf[2 * TEXT_MAX + 32];
	char *word = buf;
	struct args a = { 1, &word };

	snprintf(buf, sizeof(buf), form, text, text);
	return filter_parse(&a);
}

/* Fields of a connection, from bytes that may be few. */
static void connection(const uint8_t *p, size_t n, struct stat_proc *proc, struct stat_conn *c)
{
	static const int families[] = { AF_UNSPEC, AF_INET, AF_INET6 };
	uint8_t b[80] = { 0 };

	if (n)
		memcpy(b, p, n < sizeof(b) ? n : sizeof(b));
	*proc = (struct stat_proc){ .pid = b[0], .uid = b[1] };
	for (int i = 0; i < 8; i++)
		proc->program[i] = b[2 + i] >= 0x20 && b[2 + i] < 0x7f ? (char)b[2 + i] : '\0';
	*c = (struct stat_conn){ .fd = b[10], .family = families[b[11] % 3], .role = b[12] % 3,
				 .reason = b[13] % REASON_COUNT, .tx_path = b[14] % PATH_KINDS,
				 .rx_path = b[15] % PATH_KINDS, .cuts = b[16], .rewinds = b[17] };
	memcpy(&c->lport, b + 18, 2);
	memcpy(&c->pport, b + 20, 2);
	memcpy(c->laddr, b + 22, 16);
	memcpy(c->paddr, b + 38, 16);
	memcpy(c->tx_bytes, b + 54, 16);
	c->rx_bytes[PATH_TCP] = b[70];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const uint8_t *end = n ? memchr(data, 0, n) : NULL;
	size_t len = end ? (size_t)(end - data) : n;
	char text[TEXT_MAX + 1];
	struct filter *f, *not, *twice;
	struct stat_proc proc;
	struct stat_conn c;
	struct conn_ref ref = { &proc, &c };
	unsigned before = complaints;

	len = len < TEXT_MAX ? len : TEXT_MAX;
	memcpy(text, data, len);
	text[len] = '\0';
	connection(end ? end + 1 : NULL, end ? n - (size_t)(end - data) - 1 : 0, &proc, &c);
	f = parse("%s", text);
	if (!f) {
		if (complaints == before)
			abort();	/* refused, and nobody knows why */
		return 0;
	}
	not = parse("not ( %s )", text);
	twice = parse("( %s ) ( %s )", text);
	if (not && filter_match(not, &ref) == filter_match(f, &ref))
		abort();
	if (twice && filter_match(twice, &ref) != filter_match(f, &ref))
		abort();
	filter_free(f);
	filter_free(not);
	filter_free(twice);
	return 0;
}
