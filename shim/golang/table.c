/*
 * table.c - what a program of Go says of itself: how it was built, and its table of functions,
 * which names each and where it begins.
 *
 * Looked for are the few by which all network calls go; each must be there as its version has it,
 * with exactly one system call of the expected form. Nothing is believed: a program that is not as
 * expected stays as it is. Pure.
 */
#include "golang/golang_int.h"

#include <errno.h>
#include <string.h>

/* ---- .go.buildinfo ---- */

/* A length as Go writes it, seven bits a byte, and so many bytes behind it. False: there are not
 * so many. */
static bool take_text(struct golang_part *from, struct golang_part *ret)
{
	uint64_t n = 0;
	size_t i = 0;

	do {
		if (i == from->len || i == 9)
			return false;
		n |= (uint64_t)(from->at[i] & 0x7f) << 7 * i;
	} while (from->at[i++] & 0x80);
	if (n > from->len - i)
		return false;
	*ret = (struct golang_part){ from->at + i, n };
	from->at += i + n;
	from->len -= i + n;
	return true;
}

static bool holds(const struct golang_part *p, const char *text)
{
	return memmem(p->at, p->len, text, strlen(text)) != NULL;
}

/* "go1.19.8" and the like; not "devel ...". */
static bool version_known(const struct golang_part *v)
{
	return v->len >= 6 && v->len < GOLANG_VERSION && !memcmp(v->at, "go1.", 4) &&
	       v->at[4] >= '1' && v->at[4] <= '9';
}

int golang_build(const struct golang_part *info, char version[GOLANG_VERSION], const char **why)
{
	static const char magic[] = "\xff Go buildinf:";
	struct golang_part rest, v, settings;

	if (info->len < 32 || memcmp(info->at, magic, sizeof magic - 1))
		return -ENOENT;
	rest = (struct golang_part){ info->at + 32, info->len - 32 };
	*why = "made by a Go before 1.18";
	if (!(info->at[15] & 2))	/* the texts are elsewhere */
		return -ENOTSUP;
	*why = "its build information cannot be read";
	if (!take_text(&rest, &v) || !take_text(&rest, &settings))
		return -ENOTSUP;
	*why = "a Go of an unknown version";
	if (!version_known(&v))
		return -ENOTSUP;
	for (size_t i = 0; i < v.len; i++)
		version[i] = v.at[i] > ' ' && v.at[i] < 127 ? (char)v.at[i] : '?';
	version[v.len] = '\0';
	*why = "built with a sanitizer";
	if (holds(&settings, "build\t-race=true") || holds(&settings, "build\t-msan=true") ||
	    holds(&settings, "build\t-asan=true"))
		return -ENOTSUP;
	*why = "Go is only a part of it";
	if (holds(&settings, "build\t-buildmode=") && !holds(&settings, "build\t-buildmode=exe") &&
	    !holds(&settings, "build\t-buildmode=pie"))
		return -ENOTSUP;
	return 0;
}

#ifdef ARCH_GOLANG
/* ---- .gopclntab ---- */

/* Go 1.18 and 1.20 have changed it; the field's name says where textStart is from. */
#define TABLE_1_18 0xfffffff0u
#define TABLE_1_20 0xfffffff1u
struct table_header {
	uint32_t magic;
	uint8_t pad[2], step, pointer;
	uint64_t functions, files, text, names, units, file_names, lines, entries;
};

/* The functions that are looked for. */
enum role { NONE, HAS_CGO, HAS_RACE, HAS_EPOLL, CALL, EXIT, VFORK, EPOLL_CREATE, EPOLL_CTL,
	    EPOLL_WAIT, ROLES };
#define BIT(role) (1u << (role))
static const struct wanted { const char *name; enum role role; } wanted[] = {
	{ "runtime/internal/syscall.Syscall6", CALL },
	{ "internal/runtime/syscall.Syscall6", CALL },		/* Go 1.23 */
	{ "internal/runtime/syscall/linux.Syscall6", CALL },	/* Go 1.26 */
	{ "runtime.exit", EXIT },
	{ "runtime.epollcreate1", EPOLL_CREATE },		/* before Go 1.20 */
	{ "runtime.epollctl", EPOLL_CTL },
	{ "runtime.epollwait", EPOLL_WAIT },
	{ "syscall.rawVforkSyscall", VFORK },			/* if it starts programs */
	{ "crosscall2", HAS_CGO },
	{ "runtime.racecall", HAS_RACE },
	{ "runtime/internal/syscall.EpollWait", HAS_EPOLL },	/* by Syscall6 */
	{ "internal/runtime/syscall.EpollWait", HAS_EPOLL },
	{ "internal/runtime/syscall/linux.EpollWait", HAS_EPOLL },
};
static const struct { enum arch_go_form form; int number; } form_of[ROLES] = {
	[CALL] = { ARCH_GO_ANY, -1 },
	[VFORK] = { ARCH_GO_VFORK, -1 },
	[EXIT] = { ARCH_GO_FIXED, SYS_exit_group },
	[EPOLL_CREATE] = { ARCH_GO_FIXED, SYS_epoll_create1 },
	[EPOLL_CTL] = { ARCH_GO_FIXED, SYS_epoll_ctl },
	[EPOLL_WAIT] = { ARCH_GO_FIXED, SYS_epoll_pwait },
};

static enum role role_of(const struct golang_part *names, uint32_t at)
{
	const char *name = (const char *)names->at + at;
	size_t room;

	if (at >= names->len)
		return NONE;
	room = names->len - at;
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		size_t n = strlen(wanted[i].name) + 1;

		if (n <= room && !memcmp(name, wanted[i].name, n))
			return wanted[i].role;
	}
	return NONE;
}

static uint32_t word(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof v);
	return v;
}

/* Since Go 1.26 the table does not say where the text begins; the module does, which has the
 * table's address at its beginning. 0: it does not, either. */
#define MODULE_TEXT 22
static uint64_t text_of_module(const struct golang_part *module, const struct golang_part *table)
{
	uint64_t word[MODULE_TEXT + 1];

	if (module->len < sizeof word)
		return 0;
	memcpy(word, module->at, sizeof word);
	return word[0] == (uintptr_t)table->at ? word[MODULE_TEXT] : 0;
}

/* The table, checked as a whole. */
struct functions {
	const uint8_t *entry;		/* of the n: where it begins, in the text; its data */
	size_t n, data;
	struct golang_part lines;	/* from `entry` on */
	struct golang_part names, text;
};

static bool open_table(const struct golang_part *table, const struct golang_part *module,
		       const struct golang_part *text, struct functions *ret)
{
	struct table_header h;

	if (table->len < sizeof h)
		return false;
	memcpy(&h, table->at, sizeof h);
	if (!h.text)
		h.text = text_of_module(module, table);
	if ((h.magic != TABLE_1_18 && h.magic != TABLE_1_20) || h.pointer != 8)
		return false;
	if (h.text < (uintptr_t)text->at || h.text >= (uintptr_t)text->at + text->len)
		return false;
	if (h.names >= table->len || h.entries >= table->len || h.functions > 1u << 24 ||
	    (table->len - h.entries) / 8 <= h.functions)
		return false;
	*ret = (struct functions){
		.entry = table->at + h.entries, .n = h.functions,
		.lines = { table->at + h.entries, table->len - h.entries },
		.names = { table->at + h.names, table->len - h.names },
		.text = { (const uint8_t *)h.text,
			  text->len - (h.text - (uintptr_t)text->at) },
	};
	return true;
}

/* Function i: its name's place and its code. */
static bool function(const struct functions *f, size_t i, uint32_t *name, struct golang_part *code)
{
	uint32_t from = word(f->entry + 8 * i), data = word(f->entry + 8 * i + 4);
	uint32_t to = word(f->entry + 8 * i + 8);

	if (from > to || to > f->text.len || data > f->lines.len - 8)
		return false;
	*name = word(f->lines.at + data + 4);
	*code = (struct golang_part){ f->text.at + from, to - from };
	return true;
}

/* A function of assembly has a second one of its name, in Go, by which Go calls it: that has no
 * system call. False: there are two, or no room. */
static bool add_site(struct golang_program *p, enum role role, const struct golang_part *code,
		     unsigned *seen)
{
	struct arch_go_site s = { 0, 0, form_of[role].form, form_of[role].number };

	if (!arch_go_find(code->at, code->len, &s))
		return true;
	if (*seen & BIT(role) || p->sites == GOLANG_SITES)
		return false;
	*seen |= BIT(role);
	p->site[p->sites++] = (struct golang_site){ code->at + s.at, s };
	return true;
}

/* All that a version has, or none. */
static bool complete(unsigned named, unsigned seen)
{
	unsigned old = BIT(EPOLL_CREATE) | BIT(EPOLL_CTL) | BIT(EPOLL_WAIT);
	unsigned must = BIT(CALL) | BIT(EXIT);

	if (named & old)
		must |= old;
	else if (!(named & BIT(HAS_EPOLL)))
		return false;
	if (named & BIT(VFORK))
		must |= BIT(VFORK);
	return (seen & must) == must;
}

int golang_functions(const struct golang_part *table, const struct golang_part *module,
		     const struct golang_part *text, struct golang_program *ret, const char **why)
{
	unsigned named = 0, seen = 0;
	struct golang_part code;
	struct functions f;
	uint32_t name;
	enum role role;

	ret->sites = 0;
	*why = "its table of functions cannot be read";
	if (!open_table(table, module, text, &f))
		return -ENOTSUP;
	for (size_t i = 0; i < f.n; i++) {
		if (!function(&f, i, &name, &code))
			return -ENOTSUP;
		role = role_of(&f.names, name);
		named |= BIT(role);
		*why = "a stub has two system calls";
		if (role >= CALL && !add_site(ret, role, &code, &seen))
			return -ENOTSUP;
		*why = "its table of functions cannot be read";
	}
	*why = "built with the race detector";
	if (named & BIT(HAS_RACE))
		return -ENOTSUP;
	*why = "without cgo its threads are not libc's";
	if (!(named & BIT(HAS_CGO)))
		return -ENOTSUP;
	*why = "its system call stubs are not the known ones";
	return complete(named, seen) ? 0 : -ENOTSUP;
}
#else
int golang_functions(const struct golang_part *table, const struct golang_part *module,
		     const struct golang_part *text, struct golang_program *ret, const char **why)
{
	(void)table, (void)module, (void)text;
	ret->sites = 0;
	*why = "the library knows no stubs of this processor";
	return -ENOTSUP;
}
#endif
