/*
 * patch.c - the sites of a program lead to stubs, which lead to our entries.
 *
 * Each page of the program with a site gets a copy, in a file without a name, which is mapped in
 * its place; a page with the stubs comes near the program. No page is ever writable and executable,
 * at one time or one after the other, so this works where a process may not have that
 * (MemoryDenyWriteExecute). The file is sealed.
 *
 * Until golang_calls_begin() a stub makes the system call itself, so pages are replaced one after
 * the other, and what fails in the middle leaves a program that works.
 */
#include "golang/golang_int.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fdtab.h"
#include "base/sys.h"

#ifdef ARCH_GOLANG
extern const char golang_entry[], golang_vfork[], golang_vforked[];

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u	/* Linux 6.3 */
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define PAGE 4096ul		/* of this processor */
#define PAGES (2 * GOLANG_SITES)
#define NEAR_STEP 0x10000ul
#define BRK_ROOM  0x20000000ul	/* behind the program: for brk() */

_Static_assert(GOLANG_SITES * ARCH_GO_STUB <= PAGE, "stubs have a page");

struct patch {
	const struct golang_program *p;
	int fd;				/* page 0: the stubs; then `page`, in this order */
	uintptr_t stubs;
	uintptr_t page[PAGES];
	size_t pages;
};

/* ---- the file ---- */

static int make_file(void)
{
	int fd = fd_moment_sys(SYS_memfd_create, "rdmashim-go",
			       MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	if (fd == -EINVAL)
		fd = fd_moment_sys(SYS_memfd_create, "rdmashim-go",
				   MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd;
}

static int write_page(const struct patch *t, size_t nth, const void *page)
{
	long n = sys(SYS_pwrite64, t->fd, page, PAGE, nth * PAGE);

	return n == PAGE ? 0 : n < 0 ? (int)n : -EIO;
}

/* ---- where ---- */

static uintptr_t try_at(const struct patch *t, uintptr_t at)
{
	long r = sys(SYS_mmap, at, PAGE, PROT_READ | PROT_EXEC,
		     MAP_PRIVATE | MAP_FIXED_NOREPLACE, t->fd, 0);

	if (r == (long)at)
		return at;
	if (r > 0)		/* a kernel before 4.17 takes the address as a wish */
		sys(SYS_munmap, r, PAGE);
	return 0;
}

/* Below the program, where nothing grows; else above, beyond what brk() may take. */
static int map_stubs(struct patch *t)
{
	uintptr_t low = t->p->low & ~(PAGE - 1), high = (t->p->high + PAGE) & ~(PAGE - 1);

	for (unsigned i = 1; !t->stubs && i <= 64 && low > (i + 1) * NEAR_STEP; i++)
		t->stubs = try_at(t, low - i * NEAR_STEP);
	for (unsigned i = 0; !t->stubs && i < 64; i++)
		t->stubs = try_at(t, high + BRK_ROOM + i * NEAR_STEP);
	if (!t->stubs)
		return -ENOMEM;
	if (t->p->high > t->stubs ? t->p->high - t->stubs > ARCH_GO_NEAR
				  : t->stubs + PAGE - t->p->low > ARCH_GO_NEAR)
		return -ERANGE;
	return 0;
}

/* ---- what ---- */

static uintptr_t stub_of(const struct patch *t, unsigned site)
{
	return t->stubs + site * ARCH_GO_STUB;
}

static int write_stubs(const struct patch *t)
{
	uint8_t page[PAGE];

	memset(page, 0xcc, sizeof page);
	for (unsigned i = 0; i < t->p->sites; i++) {
		const struct golang_site *s = &t->p->site[i];
		bool vfork = s->how.form == ARCH_GO_VFORK;

		arch_go_stub(page + i * ARCH_GO_STUB, stub_of(t, i), (uintptr_t)s->at, &s->how,
			     vfork ? golang_vfork : golang_entry, golang_vforked);
	}
	return write_page(t, 0, page);
}

static void add_page(struct patch *t, uintptr_t page)
{
	for (size_t i = 0; i < t->pages; i++)
		if (t->page[i] == page)
			return;
	t->page[t->pages++] = page;
}

/* The page as it is, but for what of the sites' jumps is in it. */
static int write_text(const struct patch *t, size_t nth)
{
	uintptr_t from = t->page[nth];
	uint8_t page[PAGE];

	memcpy(page, (const void *)from, PAGE);
	for (unsigned i = 0; i < t->p->sites; i++) {
		const struct golang_site *s = &t->p->site[i];
		uint8_t jump[16];

		arch_go_jump(jump, s->how.len, (uintptr_t)s->at, stub_of(t, i));
		for (size_t k = 0; k < s->how.len; k++)
			if ((uintptr_t)s->at + k - from < PAGE)
				page[(uintptr_t)s->at + k - from] = jump[k];
	}
	return write_page(t, 1 + nth, page);
}

static int write_all(struct patch *t)
{
	int r = write_stubs(t);

	for (unsigned i = 0; i < t->p->sites; i++) {
		const struct golang_site *s = &t->p->site[i];

		add_page(t, (uintptr_t)s->at & ~(PAGE - 1));
		add_page(t, ((uintptr_t)s->at + s->how.len - 1) & ~(PAGE - 1));
	}
	for (size_t i = 0; !r && i < t->pages; i++)
		r = write_text(t, i);
	return r ? r : (int)sys(SYS_fcntl, t->fd, F_ADD_SEALS,
				F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
}

static int map_text(const struct patch *t)
{
	for (size_t i = 0; i < t->pages; i++) {
		long r = sys(SYS_mmap, t->page[i], PAGE, PROT_READ | PROT_EXEC,
			     MAP_PRIVATE | MAP_FIXED, t->fd, (1 + i) * PAGE);

		if (r < 0)
			return (int)r;
	}
	return 0;
}

int golang_patch(const struct golang_program *p)
{
	struct patch t = { .p = p, .fd = make_file() };
	int r;

	if (t.fd < 0)
		return t.fd;
	r = (int)sys(SYS_ftruncate, t.fd, (1 + PAGES) * PAGE);
	if (!r)
		r = map_stubs(&t);
	if (!r)
		r = write_all(&t);
	if (!r)
		r = map_text(&t);
	fd_internal_close(t.fd);
	return r;
}
#else
int golang_patch(const struct golang_program *p)
{
	(void)p;
	return -ENOTSUP;
}
#endif
