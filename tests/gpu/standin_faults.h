/*
 * standin_faults.h - lets those calls of the driver fail that the library makes for itself. Its
 * table of them (`cu`, shim/cuda/cuda_driver.c) is filled from here before the library does so,
 * with functions that count and pass on; the program's own calls, hooked or not, are as ever.
 * Included by standin.c at its end.
 *
 * STANDIN_FAULT="CALL FROM TO ERROR"	of its uses number FROM to TO in a process (from 1; TO
 * 					0: all further ones) fail with that CUresult
 * STANDIN_ALSO=CALL			fails always with 999, and is not counted: what leads
 * 					to calls that undo something
 * STANDIN_TABLE=OFFSET			of `cu` in librdmashim.so, hexadecimal
 * STANDIN_COUNTS=FILE			each process appends a line at its end: CALL, seen,
 * 					failed, bytes of device memory, streams, events,
 * 					descriptors
 */
#include <dirent.h>
#include <link.h>

#include "../../shim/cuda/cuda_api.h"

#define USE(name, params) FAULT_##name,
enum { CUDA_USES FAULTS };
#undef USE

#define USE(name, params) #name,
static const char *const fault_names[] = { CUDA_USES };
#undef USE

static int fault_call = -1, fault_also = -1, fault_error;
static long fault_from, fault_to;
static _Atomic long fault_seen, fault_failed;

/* The error, 0: none. */
static int faulty(int call)
{
	long n;

	if (call == fault_also)
		return 999;
	if (call != fault_call)
		return 0;
	n = ++fault_seen;
	if (n < fault_from || (fault_to && n > fault_to))
		return 0;
	fault_failed++;
	return fault_error;
}

/* All parameters are integers and pointers, in at most four registers, but for one structure. */
typedef CUresult fault_fn(uint64_t, uint64_t, uint64_t, uint64_t);
#define USE(name, params) (fault_fn *)(void *)name,
static fault_fn *fault_real[] = { CUDA_USES };
#undef USE
#define USE(name, params) \
	static CUresult fault_##name(uint64_t a, uint64_t b, uint64_t c, uint64_t d) \
	{ \
		int e = faulty(FAULT_##name); \
		return e ? e : fault_real[FAULT_##name](a, b, c, d); \
	}
CUDA_USES
#undef USE

static CUresult fault_ipc_open(CUdeviceptr *p, struct handle h, unsigned flags)
{
	int e = faulty(FAULT_cuIpcOpenMemHandle_v2);

	return e ? e : cuIpcOpenMemHandle_v2(p, h, flags);
}

static int fault_into(struct dl_phdr_info *i, size_t size, void *offset)
{
	void **cu = (void **)(i->dlpi_addr + *(uintptr_t *)offset);

	(void)size;
	if (!strstr(i->dlpi_name, "librdmashim"))
		return 0;
#define USE(name, params) cu[FAULT_##name] = (void *)fault_##name;
	CUDA_USES
#undef USE
	cu[FAULT_cuIpcOpenMemHandle_v2] = (void *)fault_ipc_open;
	return 1;
}

static void fault_report(void)
{
	const char *file = getenv("STANDIN_COUNTS");
	FILE *f = file ? fopen(file, "a") : NULL;
	DIR *d = opendir("/proc/self/fd");
	int fds = 0, live = 0;

	while (d && readdir(d))
		fds++;
	if (d)
		closedir(d);
	for (int i = 0; i < STREAMS; i++)
		live += streams[i] != NULL;
	if (!f)
		return;
	fprintf(f, "%s %ld %ld %zu %d %d %d\n", fault_names[fault_call], fault_seen, fault_failed,
		used, live, (int)events_made, fds);
	fclose(f);
}

static __attribute__((constructor)) void fault_start(void)
{
	const char *what = getenv("STANDIN_FAULT"), *table = getenv("STANDIN_TABLE"),
		   *also = getenv("STANDIN_ALSO");
	uintptr_t offset = table ? strtoull(table, NULL, 16) : 0;
	char call[64];

	if (!what ||
	    sscanf(what, "%63s %ld %ld %d", call, &fault_from, &fault_to, &fault_error) != 4)
		return;
	for (int i = 0; i < FAULTS; i++) {
		if (!strcmp(call, fault_names[i]))
			fault_call = i;
		if (also && !strcmp(also, fault_names[i]))
			fault_also = i;
	}
	if (fault_call < 0 || !offset || !dl_iterate_phdr(fault_into, &offset)) {
		fprintf(stderr, "standin: no %s to let fail\n", call);
		_exit(98);
	}
	atexit(fault_report);
}
