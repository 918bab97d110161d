/*
 * program.c - is this program one of Go's, and where does it make system calls?
 *
 * The file says where Go's build information and its table of functions are (sections of ELF);
 * both are read in memory, where the program is mapped, within its segments (table.c). No locks, no
 * allocation.
 */
#include "golang/golang_int.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/fdtab.h"
#include "base/procfs.h"
#include "base/sys.h"

#define SEGMENTS 32
#define SECTIONS 128
#define NAMES    4096

/* What is read of it. */
struct file {
	Elf64_Ehdr head;
	Elf64_Phdr segment[SEGMENTS];
	Elf64_Shdr section[SECTIONS];
	char names[NAMES];
	uintptr_t bias;			/* from its addresses to memory */
};

static bool read_at(int fd, void *to, size_t n, uint64_t at)
{
	return sys(SYS_pread64, fd, to, n, at) == (long)n;
}

/* The sections' names come with the sections. */
static bool read_parts(int fd, struct file *f)
{
	const Elf64_Ehdr *h = &f->head;
	const Elf64_Shdr *names;

	if (!read_at(fd, &f->head, sizeof f->head, 0) || memcmp(h->e_ident, ELFMAG, SELFMAG) ||
	    h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_phnum > SEGMENTS || !h->e_shnum ||
	    h->e_shnum > SECTIONS || h->e_shstrndx >= h->e_shnum ||
	    h->e_phentsize != sizeof(Elf64_Phdr) || h->e_shentsize != sizeof(Elf64_Shdr))
		return false;
	if (!read_at(fd, f->segment, h->e_phnum * sizeof *f->segment, h->e_phoff) ||
	    !read_at(fd, f->section, h->e_shnum * sizeof *f->section, h->e_shoff))
		return false;
	names = &f->section[h->e_shstrndx];
	f->names[NAMES - 1] = '\0';
	return names->sh_size < NAMES && read_at(fd, f->names, names->sh_size, names->sh_offset);
}

/* Is it the file of what is mapped here as the program? */
static bool is_mapped(struct file *f)
{
	const void *segments = (const void *)getauxval(AT_PHDR);
	size_t n = getauxval(AT_PHNUM);

	f->bias = getauxval(AT_ENTRY) - f->head.e_entry;
	return segments && n == f->head.e_phnum &&
	       !memcmp(segments, f->segment, n * sizeof *f->segment);
}

/* f: the program's file is read and is the right one. */
static bool read_file(struct file *f)
{
	bool ok;
	int fd;

	if (!proc_is_ours())
		return false;
	fd = fd_moment_sys(SYS_openat, AT_FDCWD, "/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ok = read_parts(fd, f) && is_mapped(f);
	fd_internal_close(fd);
	return ok;
}

/* Of the first segment of the program with these rights in which [at, at + n) is as in the file. */
static const Elf64_Phdr *segment_of(const struct file *f, uint64_t at, uint64_t n, uint32_t rights)
{
	for (int i = 0; i < f->head.e_phnum; i++) {
		const Elf64_Phdr *p = &f->segment[i];

		if (p->p_type == PT_LOAD && (p->p_flags & rights) == rights && at >= p->p_vaddr &&
		    n <= p->p_filesz && at - p->p_vaddr <= p->p_filesz - n)
			return p;
	}
	return NULL;
}

/* A section by its name, where it is mapped. */
static bool find_part(const struct file *f, const char *name, struct golang_part *ret)
{
	for (int i = 0; i < f->head.e_shnum; i++) {
		const Elf64_Shdr *s = &f->section[i];

		if (s->sh_name >= NAMES || strcmp(f->names + s->sh_name, name))
			continue;
		if (!segment_of(f, s->sh_addr, s->sh_size, PF_R))
			return false;
		*ret = (struct golang_part){ (const uint8_t *)(f->bias + s->sh_addr), s->sh_size };
		return true;
	}
	return false;
}

static void find_ends(const struct file *f, struct golang_program *ret)
{
	ret->low = UINTPTR_MAX;
	ret->high = 0;
	for (int i = 0; i < f->head.e_phnum; i++) {
		const Elf64_Phdr *p = &f->segment[i];
		uintptr_t from = f->bias + p->p_vaddr;

		if (p->p_type != PT_LOAD)
			continue;
		ret->low = from < ret->low ? from : ret->low;
		ret->high = from + p->p_memsz > ret->high ? from + p->p_memsz : ret->high;
	}
}

int golang_look(struct golang_program *ret, const char **why)
{
	struct golang_part info, table, code, module = { NULL, 0 };
	const Elf64_Phdr *text;
	struct file f;
	int r;

	memset(&f, 0, sizeof f);
	if (!read_file(&f) || !find_part(&f, ".go.buildinfo", &info))
		return -ENOENT;
	r = golang_build(&info, ret->version, why);
	if (r)
		return r;
	*why = "it has no table of functions";
	if (!find_part(&f, ".gopclntab", &table) &&
	    !find_part(&f, ".data.rel.ro.gopclntab", &table))
		return -ENOTSUP;
	*why = "its text is not as expected";
	if (!find_part(&f, ".text", &code))
		return -ENOTSUP;
	text = segment_of(&f, (uintptr_t)code.at - f.bias, code.len, PF_R | PF_X);
	if (!text || text->p_flags & PF_W)
		return -ENOTSUP;
	ret->text = (struct golang_part){ (const uint8_t *)(f.bias + text->p_vaddr),
					  text->p_filesz };
	find_ends(&f, ret);
	(void)find_part(&f, ".go.module", &module);
	return golang_functions(&table, &module, &ret->text, ret, why);
}
