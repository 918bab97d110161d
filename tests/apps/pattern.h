/*
 * pattern.h - a byte stream whose every byte is known from (seed, offset), so that each receiver
 * can tell on its own whether what it got is right. For the test programs in tests/apps.
 */
#ifndef TESTS_PATTERN_H
#define TESTS_PATTERN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static inline uint64_t pattern_word(uint64_t seed, uint64_t index)
{
	/* splitmix64 */
	uint64_t z = seed * 0xd1342543de82ef95ull + index * 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static inline void pattern_fill(void *buf, size_t n, uint64_t seed, uint64_t off)
{
	unsigned char *p = buf;

	while (n) {
		uint64_t w = pattern_word(seed, off / 8);
		size_t skip = off % 8, k = 8 - skip < n ? 8 - skip : n;

		memcpy(p, (unsigned char *)&w + skip, k);
		p += k;
		off += k;
		n -= k;
	}
}

/* Returns the number of right bytes at the start of buf. */
static inline size_t pattern_check(const void *buf, size_t n, uint64_t seed, uint64_t off)
{
	const unsigned char *p = buf;
	size_t done = 0;

	while (done < n) {
		uint64_t w = pattern_word(seed, (off + done) / 8);
		size_t skip = (off + done) % 8, k = 8 - skip < n - done ? 8 - skip : n - done;

		if (memcmp(p + done, (unsigned char *)&w + skip, k)) {
			while (p[done] == ((unsigned char *)&w)[(off + done) % 8])
				done++;
			return done;
		}
		done += k;
	}
	return n;
}

#endif
