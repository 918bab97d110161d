/*
 * elf_symbols.h - symbols of the loaded libraries, without dlsym(): that allocates in glibc before
 * 2.34, and who asks may be an allocator that has just begun.
 *
 * Locks: none of its own; dl_iterate_phdr() takes one of the loader's.
 */
#ifndef RDMASHIM_ELF_SYMBOLS_H
#define RDMASHIM_ELF_SYMBOLS_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

struct elf_symbols {
	const ElfW(Sym) *sym;
	const char *str;
	const uint32_t *hash;	/* DT_GNU_HASH */
	const uint16_t *version;
};

/* False: it has none, or not in the form that is known here. */
bool elf_open(const struct dl_phdr_info *info, struct elf_symbols *e);
/* The function of that name, in its default version, or NULL. */
void *elf_find(const struct dl_phdr_info *info, const struct elf_symbols *e, const char *name);

/* What dlsym(RTLD_NEXT, name) finds from here, for n names at once; those in *found are left.
 * False: there is a library without what elf_open() needs: then dlsym() may know better. */
bool elf_find_next(const char *const *names, void **found, unsigned n);

#endif
