/*
 * words.h - text without stdio, locale or malloc: formatting, integers, quoting, globs and
 * "did you mean". Pure functions, async-signal-safe, shared by the parser, the logger and rdmastat.
 */
#ifndef RDMASHIM_WORDS_H
#define RDMASHIM_WORDS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Formats into buf (always NUL-terminated if len > 0) and returns the length written, without
 * the NUL. Knows %s %c %d %i %u %x %p %% with l, ll or z, nothing else: formatting stops at an
 * unknown one. A null %s prints "(null)". No width or precision.
 */
size_t fmt_string(char *buf, size_t len, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
size_t fmt_vstring(char *buf, size_t len, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));

/* Decimal digits at the start of s[0..len). Returns how many, 0 if none; *ret is UINT64_MAX and
 * *overflow is set if the number does not fit. */
size_t parse_digits(const char *s, size_t len, uint64_t *ret, bool *overflow);

/* Makes s[0..len) fit for a message: quotes round it, \xNN for what is not printable ASCII,
 * "..." when cut. */
const char *quote_word(const char *s, size_t len, char *buf, size_t buflen);

/*
 * The one function through which every string goes that somebody else may have written, before it
 * is shown or logged: nothing of it steers a terminal. `instead` stands for each byte that is a
 * control character (C0, DEL, C1 in UTF-8 too), or of a character that turns the order of others or
 * begins a line, or not UTF-8. ASCII_ONLY: for all but ASCII, where a column is to be a byte.
 */
enum { KEEP_UTF8, ASCII_ONLY };
void make_printable(char *s, size_t len, char instead, int keep);

/* The entry of list[0..n) that s[0..len) was probably meant to be, or NULL. */
const char *suggest_word(const char *s, size_t len, const char *const *list, size_t n);

/* Shell-like match of the whole name: * any run, ? any one byte. Linear in practice, never
 * exponential. */
bool glob_match(const char *pat, size_t patlen, const char *name);

bool word_is(const char *s, size_t len, const char *lit);

#endif
