/*
 * tsc.c - prints how many kHz this processor's time stamp counter has. An emulated processor
 * passes the counter on, and the guest's own attempt to measure it is off by any factor on a
 * machine that has other work.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* Both clocks at one moment: the reading of several that took the shortest. */
static void sample(uint64_t *ret_tsc, uint64_t *ret_ns)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 100; i++) {
		uint64_t before = __rdtsc(), ns = now_ns(), after = __rdtsc();

		if (after - before < best) {
			best = after - before;
			*ret_tsc = before + best / 2;
			*ret_ns = ns;
		}
	}
}

int main(void)
{
	const struct timespec pause = { .tv_nsec = 50 * 1000 * 1000 };
	uint64_t tsc[2], ns[2];

	sample(&tsc[0], &ns[0]);
	nanosleep(&pause, NULL);
	sample(&tsc[1], &ns[1]);
	printf("%llu\n", (unsigned long long)((tsc[1] - tsc[0]) * 1000000 / (ns[1] - ns[0])));
	return 0;
}
