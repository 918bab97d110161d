/*
 * elf_symbols.c - see elf_symbols.h.
 */
#include "libc/elf_symbols.h"

#include <elf.h>
#include <stddef.h>
#include <string.h>

#define HIDDEN 0x8000	/* of a version: not the default one */

static uint32_t gnu_hash(const char *s)
{
	uint32_t h = 5381;

	for (; *s; s++)
		h = h * 33 + (uint8_t)*s;
	return h;
}

/* glibc has made these absolute, but for the kernel's own library. */
static const void *at(const struct dl_phdr_info *info, ElfW(Addr) p)
{
	return (const void *)(p < info->dlpi_addr ? p + info->dlpi_addr : p);
}

bool elf_open(const struct dl_phdr_info *info, struct elf_symbols *e)
{
	const ElfW(Dyn) *d = NULL;

	memset(e, 0, sizeof *e);
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			d = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (; d && d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_SYMTAB)
			e->sym = at(info, d->d_un.d_ptr);
		else if (d->d_tag == DT_STRTAB)
			e->str = at(info, d->d_un.d_ptr);
		else if (d->d_tag == DT_GNU_HASH)
			e->hash = at(info, d->d_un.d_ptr);
		else if (d->d_tag == DT_VERSYM)
			e->version = at(info, d->d_un.d_ptr);
	}
	return e->sym && e->str && e->hash;
}

static void *address(const struct dl_phdr_info *info, const ElfW(Sym) *s)
{
	void *p = (void *)(info->dlpi_addr + s->st_value);

	if (ELF64_ST_TYPE(s->st_info) != STT_GNU_IFUNC)
		return p;
	return ((void *(*)(void))p)();
}

void *elf_find(const struct dl_phdr_info *info, const struct elf_symbols *e, const char *name)
{
	uint32_t nb = e->hash[0], first = e->hash[1], words = e->hash[2], h = gnu_hash(name);
	const uint32_t *bucket = e->hash + 4 + words * (sizeof(ElfW(Addr)) / 4);
	const uint32_t *chain = bucket + nb;
	uint32_t i = nb ? bucket[h % nb] : 0;

	if (i < first)
		return NULL;
	for (;; i++) {
		uint32_t c = chain[i - first];
		const ElfW(Sym) *s = &e->sym[i];

		if ((c | 1) == (h | 1) && s->st_shndx != SHN_UNDEF && s->st_value &&
		    !(e->version && e->version[i] & HIDDEN) && !strcmp(e->str + s->st_name, name))
			return address(info, s);
		if (c & 1)
			return NULL;
	}
}

struct wanted {
	const char *const *names;
	void **found;
	unsigned n;
	bool after_us, unknown;
};

static bool is_us(const struct dl_phdr_info *info)
{
	uintptr_t here = (uintptr_t)gnu_hash;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && here - (info->dlpi_addr + p->p_vaddr) < p->p_memsz)
			return true;
	}
	return false;
}

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct wanted *w = arg;
	struct elf_symbols e;

	(void)size;
	if (!w->after_us) {
		w->after_us = is_us(info);
		return 0;
	}
	if (!elf_open(info, &e)) {
		w->unknown = true;
		return 1;
	}
	for (unsigned i = 0; i < w->n; i++)
		if (!w->found[i])
			w->found[i] = elf_find(info, &e, w->names[i]);
	return 0;
}

bool elf_find_next(const char *const *names, void **found, unsigned n)
{
	struct wanted w = { .names = names, .found = found, .n = n };

	dl_iterate_phdr(look, &w);
	return w.after_us && !w.unknown;
}
