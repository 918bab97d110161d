/*
 * own_memory.c - see own_memory.h. No locks.
 */
#include "base/own_memory.h"

#include "arch/arch.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define PAGE arch_page()

static _Atomic(uint8_t *) mark;		/* 1 in our memory, wiped in a copy of it */

void memory_mark(void)
{
	static bool tried;
	void *p;

	if (tried)
		return;
	tried = true;
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return;
	if (madvise(p, PAGE, MADV_WIPEONFORK)) {
		munmap(p, PAGE);
		return;
	}
	*(uint8_t *)p = 1;
	atomic_store(&mark, (uint8_t *)p);
}

void memory_marked_anew(void)
{
	if (atomic_load(&mark))
		*atomic_load(&mark) = 1;
}

bool memory_is_ours(void)
{
	uint8_t *m = atomic_load(&mark);

	return !m || *m;
}
