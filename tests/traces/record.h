/*
 * record.h - forced into each source of a library that records what its mechanisms observe and
 * decide (record.sh): a line for each, by a raw write to descriptor 200, if the program has that.
 *
 *	MECHANISM WHO WHAT A B DECIDED
 */
#ifndef RECORD_H
#define RECORD_H

/* No header: the first that a source includes must be its own (libc/libc.h). x86-64. */
typedef __UINT64_TYPE__ record_u64;
#define RECORD_WRITE 1L
#define RECORD_GETPID 39L
#define RECORD_FD 200

static inline char *record_word(char *p, const char *w)
{
	while (*w)
		*p++ = *w++;
	*p++ = ' ';
	return p;
}

static inline char *record_number(char *p, record_u64 v)
{
	char d[20];
	int n = 0;

	do
		d[n++] = (char)('0' + v % 10);
	while (v /= 10);
	while (n)
		*p++ = d[--n];
	*p++ = ' ';
	return p;
}

static inline void record_line(const char *mechanism, const void *who, const char *what,
			       record_u64 a,
			       record_u64 b, record_u64 decided)
{
	char line[160], *p = record_word(line, mechanism);
	long r;

	/* After a fork there are two at the same address. */
	__asm__ volatile("syscall" : "=a"(r) : "a"(RECORD_GETPID) : "rcx", "r11", "memory");
	p = record_number(p, (record_u64)who ^ (record_u64)r << 42);
	p = record_word(p, what);
	p = record_number(p, a);
	p = record_number(p, b);
	p = record_number(p, decided);
	p[-1] = '\n';
	__asm__ volatile("syscall" : "=a"(r) : "a"(RECORD_WRITE), "D"((long)RECORD_FD),
			 "S"(line), "d"(p - line) : "rcx", "r11", "memory");
}

#define SEEN(mechanism, who, what, a, b, decided) \
	record_line(mechanism, who, what, (record_u64)(a), (record_u64)(b), (record_u64)(decided))

#endif
