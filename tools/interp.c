/*
 * interp.c - see interp.h. What is in the file is not trusted.
 */
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interp.h"

static bool read_at(int fd, void *buf, size_t n, uint64_t at)
{
	return at <= INT64_MAX && pread(fd, buf, n, (off_t)at) == (ssize_t)n;
}

/* PT_INTERP of a program; "" if there is none. False: it is none of this machine, or cannot be
 * read. */
static bool linker_of(int fd, char *buf, size_t len)
{
	Elf64_Ehdr h;
	Elf64_Phdr p;

	buf[0] = '\0';
	if (!read_at(fd, &h, sizeof h, 0) || memcmp(h.e_ident, ELFMAG, SELFMAG) ||
	    h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_phentsize != sizeof p || !h.e_phnum)
		return false;
	for (unsigned i = 0; i < h.e_phnum; i++) {
		if (!read_at(fd, &p, sizeof p, h.e_phoff + i * sizeof p))
			return false;
		if (p.p_type != PT_INTERP)
			continue;
		if (p.p_filesz < 2 || p.p_filesz > len ||
		    !read_at(fd, buf, p.p_filesz, p.p_offset)) {
			buf[0] = '\0';
			return false;
		}
		buf[p.p_filesz - 1] = '\0';
		return true;
	}
	return true;
}

/* The first word behind #!, "" if it is no script. */
static void script_of(int fd, char *buf, size_t len)
{
	ssize_t n = pread(fd, buf, len - 1, 0);
	char *word = buf + 2;

	buf[n > 0 ? n : 0] = '\0';
	if (n < 3 || buf[0] != '#' || buf[1] != '!') {
		buf[0] = '\0';
		return;
	}
	word += strspn(word, " \t");
	word[strcspn(word, " \t\n")] = '\0';
	memmove(buf, word, strlen(word) + 1);
}

static int open_program(const char *program)
{
	const char *dirs = getenv("PATH"), *end;
	char path[PATH_MAX];
	int n;

	if (strchr(program, '/'))
		return open(program, O_RDONLY | O_CLOEXEC);
	for (; dirs && *dirs; dirs = *end ? end + 1 : end) {
		end = strchrnul(dirs, ':');
		n = snprintf(path, sizeof path, "%.*s/%s", (int)(end - dirs), dirs, program);
		if (end > dirs && n > 0 && n < (int)sizeof path && !access(path, X_OK))
			return open(path, O_RDONLY | O_CLOEXEC);
	}
	return -1;
}

/* As linker_of(), of what runs: the program, or the interpreter of a script. */
static bool linker_of_program(const char *program, char *buf, size_t len)
{
	char script[PATH_MAX];
	int fd = open_program(program);
	bool known;

	buf[0] = '\0';
	if (fd < 0)
		return false;
	script_of(fd, script, sizeof script);
	if (script[0] == '/') {
		close(fd);
		fd = open(script, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return false;
	}
	known = linker_of(fd, buf, len);
	close(fd);
	return known;
}

bool program_of_musl(const char *program, char *linker, size_t len)
{
	const char *base;

	linker_of_program(program, linker, len);
	base = strrchr(linker, '/');
	return base && !strncmp(base + 1, "ld-musl-", 8);
}

bool program_is_static(const char *program)
{
	const char *slash = strrchr(program, '/');
	char linker[PATH_MAX];

	if (!strncmp(slash ? slash + 1 : program, "ld", 2))	/* the linker itself has none */
		return false;
	return linker_of_program(program, linker, sizeof linker) && !linker[0];
}
