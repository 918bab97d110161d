/*
 * seen.h - what a mechanism that adapts has observed and decided, for those who record it: nothing,
 * unless the library is built for that (tests/traces/record.sh), which defines SEEN first.
 */
#ifndef RDMASHIM_SEEN_H
#define RDMASHIM_SEEN_H

#ifndef SEEN
#define SEEN(mechanism, who, what, a, b, decided) ((void)0)
#endif

#endif
