/* mpi.c - what every MPI does over its TCP connections: a ring of messages of many sizes, all to
 * all, broadcasts, sums, sends that cross each other. Rank 0 prints a sum of all that came, the
 * same in every run. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (4u << 20)

static int me, all;
static uint64_t seen = 0xcbf29ce484222325u;

static void fill(uint8_t *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		p[i] = (uint8_t)(seed >> 56);
	}
}

static void see(const void *from, size_t n)
{
	const uint8_t *p = from;

	for (size_t i = 0; i < n; i++)
		seen = (seen ^ p[i]) * 0x100000001b3u;
}

static void ring(uint8_t *out, uint8_t *in)
{
	for (unsigned round = 0; round < 60; round++) {
		int n = (int)((round * round * 1237u) % MAX_BYTES) + 1;

		fill(out, (size_t)n, round * 100u + (unsigned)me);
		MPI_Sendrecv(out, n, MPI_BYTE, (me + 1) % all, 1, in, n, MPI_BYTE,
			     (me + all - 1) % all, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		see(in, (size_t)n);
	}
}

static void all_to_all(uint8_t *out, uint8_t *in)
{
	for (int n = 1; n * all <= (int)MAX_BYTES; n *= 4) {
		fill(out, (size_t)(n * all), (unsigned)(n + me));
		MPI_Alltoall(out, n, MPI_BYTE, in, n, MPI_BYTE, MPI_COMM_WORLD);
		see(in, (size_t)(n * all));
	}
}

/* Many of them under way at once, taken in another order than they were sent. */
static void crossing(uint8_t *out, uint8_t *in)
{
	MPI_Request r[128];
	const int n = 5000, count = 16;
	int used = 0;

	fill(out, (size_t)n, 99u + (unsigned)me);
	for (int peer = 0; peer < all; peer++)
		for (int i = 0; peer != me && i < count; i++) {
			MPI_Irecv(in + (peer * count + count - 1 - i) * n, n, MPI_BYTE, peer,
				  100 + i, MPI_COMM_WORLD, &r[used++]);
			MPI_Isend(out, n, MPI_BYTE, peer, 100 + count - 1 - i, MPI_COMM_WORLD,
				  &r[used++]);
		}
	MPI_Waitall(used, r, MPI_STATUSES_IGNORE);
	see(in, (size_t)(all * count * n));
}

static void sums(void)
{
	static uint64_t a[200000], b[200000];

	for (unsigned round = 0; round < 10; round++) {
		for (unsigned i = 0; i < 200000; i++)
			a[i] = i * 31u + round + (unsigned)me;
		MPI_Allreduce(a, b, 200000, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
		see(b, sizeof b);
		MPI_Bcast(b, 200000, MPI_UINT64_T, (int)round % all, MPI_COMM_WORLD);
		see(b, sizeof b);
	}
	for (unsigned round = 0; round < 500; round++) {	/* small ones */
		a[0] = round * (unsigned)(me + 1);
		MPI_Allreduce(a, b, 1, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
		see(b, 8);
	}
}

int main(int argc, char **argv)
{
	uint8_t *out = calloc(1, 2 * MAX_BYTES), *in = calloc(1, 2 * MAX_BYTES);
	uint64_t got[64];

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &all);
	if (!out || !in || all > 4)
		MPI_Abort(MPI_COMM_WORLD, 2);
	ring(out, in);
	all_to_all(out, in);
	crossing(out, in);
	sums();
	MPI_Gather(&seen, 1, MPI_UINT64_T, got, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	for (int i = 0; !me && i < all; i++)
		printf("rank %d saw %016llx\n", i, (unsigned long long)got[i]);
	MPI_Finalize();
	return 0;
}
