/*
 * snip_bytes.h - a part of snip.h: bytes whose place can be told.
 */
static char byte_at(size_t off) { return (char)((off * 2654435761u >> 13) + off); }
static void fill(char *p, size_t n, size_t off)
{
	for (size_t i = 0; i < n; i++)
		p[i] = byte_at(off + i);
}
static const char *right(const char *p, long n, size_t off)
{
	for (long i = 0; i < n; i++)
		if (p[i] != byte_at(off + (size_t)i))
			return "WRONG";
	return "right";
}
/* All of n bytes, from offset `off` of the pattern, however they come. */
static void gather(const char *what, int fd, size_t n, size_t off)
{
	size_t have = 0;

	while (have < n) {
		ssize_t r = read(fd, buf + have, n - have);

		if (r < 0 && errno == EAGAIN) {
			until(fd, POLLIN);
			continue;
		}
		if (r <= 0) {
			tell("%s: %zu of %zu bytes, then %s", what, have, n,
			     r ? strerrorname_np(errno) : "the end");
			return;
		}
		have += (size_t)r;
	}
	tell("%s: %zu bytes, %s", what, have, right(buf, (long)have, off));
}
