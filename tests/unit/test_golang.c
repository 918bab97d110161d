/*
 * test_golang.c - what is found in a program of Go: its build information, its table of functions,
 * the one system call of each stub; and that nothing is found in what is not whole. The bytes that
 * take a stub's place do what the stub did.
 * LINK: shim/golang/table.c
 */
#include "suite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "golang/golang_int.h"

#ifdef ARCH_GOLANG

/* ---- build information ---- */

static uint8_t info[4096];

static size_t put_text(size_t at, const char *text)
{
	size_t n = strlen(text);

	if (n >= 128)
		info[at++] = (uint8_t)(n & 0x7f) | 0x80, n >>= 7;
	info[at++] = (uint8_t)n;
	memcpy(info + at, text, strlen(text));
	return at + strlen(text);
}

static struct golang_part make_info(const char *version, const char *settings)
{
	memset(info, 0, sizeof info);
	memcpy(info, "\xff Go buildinf:\x08\x02", 16);
	return (struct golang_part){ info, put_text(put_text(32, version), settings) };
}

static int build(const char *version, const char *settings)
{
	struct golang_part p = make_info(version, settings);
	char is[GOLANG_VERSION];
	const char *why;
	int r = golang_build(&p, is, &why);

	if (!r)
		ck_assert_str_eq(is, version);
	return r;
}

START_TEST(test_build)
{
	struct golang_part p;
	char is[GOLANG_VERSION], much[300];
	const char *why;

	ck_assert_int_eq(build("go1.19.8", ""), 0);
	ck_assert_int_eq(build("go1.26.0", "path\tx\nbuild\t-buildmode=exe\n"), 0);
	ck_assert_int_eq(build("go1.19", "build\t-buildmode=pie\nbuild\tCGO_ENABLED=1\n"), 0);
	ck_assert_int_eq(build("go1.19", "build\t-buildmode=c-archive\n"), -ENOTSUP);
	ck_assert_int_eq(build("go1.19", "build\t-race=true\n"), -ENOTSUP);
	ck_assert_int_eq(build("go1.19", "build\t-msan=true\n"), -ENOTSUP);
	ck_assert_int_eq(build("go1.19", "build\t-asan=true\n"), -ENOTSUP);
	ck_assert_int_eq(build("devel go1.27-abcdef", ""), -ENOTSUP);
	ck_assert_int_eq(build("go2.0.1", ""), -ENOTSUP);
	ck_assert_int_eq(build("go1.19-and-so-on-and-so-forth", ""), -ENOTSUP);
	memset(much, 'x', sizeof much - 1);
	much[sizeof much - 1] = '\0';
	ck_assert_int_eq(build("go1.20", much), 0);

	p = make_info("go1.19.8", "settings");
	info[15] = 0;		/* where older ones have pointers */
	ck_assert_int_eq(golang_build(&p, is, &why), -ENOTSUP);
	p = make_info("go1.19.8", "settings");
	info[3] = 'x';
	ck_assert_int_eq(golang_build(&p, is, &why), -ENOENT);
	p = make_info("go1.19.8", "settings");
	for (size_t n = p.len; n--;) {
		struct golang_part less = { p.at, n };

		ck_assert_int_lt(golang_build(&less, is, &why), 0);
	}
	memset(info + 32, 0xff, 20);	/* a length without end */
	ck_assert_int_lt(golang_build(&p, is, &why), 0);
}
END_TEST

/* ---- table of functions ---- */

#define CALL6  "\x90\x0f\x05\x48\x3d\x01\xf0\xff\xff\x76\x01\xc3"
#define VFORK  "\x41\x5c\x0f\x05\x41\x54\x48\x3d\x01\xf0\xff\xff\xc3"
#define EXIT   "\xb8\xe7\x00\x00\x00\x0f\x05\xc3"
#define EXIT9  "\x48\xc7\xc0\xe7\x00\x00\x00\x0f\x05\xc3"
#define CREATE "\xb8\x23\x01\x00\x00\x0f\x05\xc3"
#define CTL    "\xb8\xe9\x00\x00\x00\x0f\x05\xc3"
#define WAIT   "\xb8\x19\x01\x00\x00\x0f\x05\xc3"
#define NO     "\x90\xc3"

struct fun { const char *name, *code; size_t n; };
#define FUN(name, code) { name, code, sizeof code - 1 }

static const struct fun old[] = {
	FUN("runtime/internal/syscall.Syscall6", CALL6), FUN("main.other", WAIT),
	FUN("runtime.exit", NO), FUN("runtime.exit", EXIT), FUN("runtime.epollcreate1", CREATE),
	FUN("runtime.epollctl", CTL), FUN("runtime.epollwait", WAIT),
	FUN("syscall.rawVforkSyscall", VFORK), FUN("crosscall2", NO),
};
static const struct fun new[] = {
	FUN("internal/runtime/syscall.EpollWait", NO),
	FUN("internal/runtime/syscall.Syscall6", CALL6), FUN("runtime.exit", EXIT9),
	FUN("crosscall2", NO),
};
#define MANY 16

static uint8_t text[8192], table[8192];
static uint64_t module[40];
static struct golang_part text_part = { text, sizeof text }, table_part, module_part;

static void put(size_t at, uint64_t v, size_t n) { memcpy(table + at, &v, n); }

/* As Go lays it out: the header, names, entries with what they point to. */
static void make_table(const struct fun *f, size_t n, uint32_t magic)
{
	size_t names = 72, entries = 2048, data = 8 * n + 8, code = 64;

	memset(text, 0xcc, sizeof text);
	memset(table, 0, sizeof table);
	put(0, magic, 4);
	put(6, 1, 1);
	put(7, 8, 1);
	put(8, n, 8);
	put(24, (uintptr_t)text + 64, 8);
	put(32, names, 8);
	put(64, entries, 8);
	for (size_t i = 0; i < n; i++) {
		strcpy((char *)table + names, f[i].name);
		put(entries + 8 * i, code - 64, 4);
		put(entries + 8 * i + 4, data, 4);
		put(entries + data, code - 64, 4);
		put(entries + data + 4, names - 72, 4);
		memcpy(text + code, f[i].code, f[i].n);
		names += strlen(f[i].name) + 1;
		data += 44;
		code += 64;
	}
	put(entries + 8 * n, code - 64, 4);
	table_part = (struct golang_part){ table, entries + data };
}

static int look(struct golang_program *p)
{
	const char *why = NULL;
	int r = golang_functions(&table_part, &module_part, &text_part, p, &why);

	ck_assert(!r || why);
	return r;
}

#define COUNT(a) (sizeof(a) / sizeof *(a))

static int with(const struct fun *f, size_t n)
{
	struct golang_program p;

	make_table(f, n, 0xfffffff0);
	return look(&p);
}

START_TEST(test_functions)
{
	struct golang_program p;

	make_table(old, COUNT(old), 0xfffffff0);
	ck_assert_int_eq(look(&p), 0);
	ck_assert_uint_eq(p.sites, 6);
	ck_assert_ptr_eq(p.site[0].at, text + 64 + 1);
	ck_assert_uint_eq(p.site[0].how.len, 8);
	ck_assert_ptr_eq(p.site[1].at, text + 64 + 3 * 64);
	ck_assert_uint_eq(p.site[1].how.len, 7);
	ck_assert_int_eq(p.site[1].how.number, SYS_exit_group);
	ck_assert_ptr_eq(p.site[5].at, text + 64 + 7 * 64 + 2);
	ck_assert_uint_eq(p.site[5].how.len, 10);
	make_table(new, COUNT(new), 0xfffffff1);
	ck_assert_int_eq(look(&p), 0);
	ck_assert_uint_eq(p.sites, 2);
	ck_assert_uint_eq(p.site[1].how.len, 9);
	make_table(new, COUNT(new), 0xfffffffa);	/* Go 1.16 */
	ck_assert_int_eq(look(&p), -ENOTSUP);
}
END_TEST

START_TEST(test_all_or_none)
{
	struct fun f[MANY];
	struct golang_program p;

	/* each that is missing, and each whose code is another */
	for (size_t i = 0; i < COUNT(old); i++) {
		memcpy(f, old, sizeof old);
		f[i].name = "main.main";
		ck_assert_int_eq(with(f, COUNT(old)),
				 i == 1 || i == 2 || i == 7 ? 0 : -ENOTSUP);
		memcpy(f, old, sizeof old);
		f[i] = (struct fun){ old[i].name, NO, 2 };
		ck_assert_int_eq(with(f, COUNT(old)),
				 i == 1 || i == 2 || i == 8 ? 0 : -ENOTSUP);
	}
	for (size_t i = 0; i < COUNT(new); i++) {
		memcpy(f, new, sizeof new);
		f[i].name = "main.main";
		ck_assert_int_eq(with(f, COUNT(new)), -ENOTSUP);
	}
	/* two of one name */
	memcpy(f, new, sizeof new);
	f[COUNT(new)] = new[1];
	ck_assert_int_eq(with(f, COUNT(new) + 1), -ENOTSUP);
	/* two in one function */
	f[COUNT(new)] = (struct fun)FUN("main.main", NO);
	f[2] = (struct fun)FUN("runtime.exit", EXIT EXIT);
	ck_assert_int_eq(with(f, COUNT(new)), -ENOTSUP);
	memcpy(f, new, sizeof new);
	f[COUNT(new)] = (struct fun)FUN("runtime.racecall", NO);
	ck_assert_int_eq(with(f, COUNT(new) + 1), -ENOTSUP);
	/* since Go 1.26 the module says where the text begins */
	make_table(new, COUNT(new), 0xfffffff1);
	put(24, 0, 8);
	module[0] = (uintptr_t)table;
	module[22] = (uintptr_t)text + 64;
	for (size_t n = 0; n <= sizeof module; n += 8) {
		module_part = (struct golang_part){ (void *)module, n };
		ck_assert_int_eq(look(&p), n >= 23 * 8 ? 0 : -ENOTSUP);
	}
	module[0]++;		/* another's */
	ck_assert_int_eq(look(&p), -ENOTSUP);
	module_part.len = 0;
	/* the text begins elsewhere */
	make_table(new, COUNT(new), 0xfffffff1);
	put(24, 0, 8);
	ck_assert_int_eq(look(&p), -ENOTSUP);
	put(24, (uintptr_t)text + sizeof text, 8);
	ck_assert_int_eq(look(&p), -ENOTSUP);
}
END_TEST

/* Whatever stands there, nothing beyond the parts is read: the table ends, and the text, at a page
 * that may not be. */
START_TEST(test_damaged)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *room = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct golang_part whole;
	struct golang_program p;
	unsigned found = 0;

	ck_assert_ptr_ne(room, MAP_FAILED);
	ck_assert_int_eq(mprotect(room + 4 * page, 4 * page, PROT_NONE), 0);
	srand(41);
	for (int i = 0; i < 20000; i++) {
		make_table(old, COUNT(old), 0xfffffff0);
		whole = table_part;
		if (i % 4 == 0)
			whole.len = (size_t)rand() % whole.len;
		for (int k = 0; k < 1 + i % 5; k++) {
			size_t most = i % 2 ? 2048 + 8 * COUNT(old) : whole.len + 1;

			table[(size_t)rand() % most] = (uint8_t)rand();
		}
		memcpy(room + 4 * page - whole.len, table, whole.len);
		table_part = (struct golang_part){ room + 4 * page - whole.len, whole.len };
		found += !look(&p);
	}
	ck_assert_uint_gt(found, 100);		/* where it did not matter */
	ck_assert_uint_lt(found, 19000);
	munmap(room, 8 * page);
}
END_TEST

/* ---- what takes the place ---- */

/* The entry of this test: adds 1000 to the number and goes on behind the stub's system call. */
__asm__(".globl stub_entry\nstub_entry:\n lea 1000(%rax),%rax\n jmp *%rcx\n"
	".globl stub_raw\nstub_raw:\n lea -2(%rcx),%rcx\n jmp *%rcx\n"
	".globl stub_behind\nstub_behind:\n lea 5(%rax),%rax\n jmp *%rcx\n");
extern const char stub_entry[], stub_raw[], stub_behind[];

/* Runs code[0..n), in whose place at `site` a jump to a stub is, and which has the number in eax
 * unless it sets it; the result. */
static long run(const char *code, size_t n, enum arch_go_form form, int number, long rax,
		const void *entry)
{
	uint8_t *room = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct arch_go_site s = { 0, 0, form, number };
	long r;

	ck_assert_ptr_ne(room, MAP_FAILED);
	memcpy(room, code, n);
	ck_assert(arch_go_find(room, n, &s));
	arch_go_stub(room + 4096, (uintptr_t)room + 4096, (uintptr_t)room + s.at, &s, entry,
		     stub_behind);
	arch_go_jump(room + s.at, s.len, (uintptr_t)room + s.at, (uintptr_t)room + 4096);
	__asm__ volatile("call *%1" : "=a"(r) : "r"(room), "a"(rax)
			 : "rcx", "r11", "r12", "memory", "cc");
	munmap(room, 8192);
	return r;
}

/* ... a result that is no error is counted up */
#define BODY "\x0f\x05\x48\x3d\x01\xf0\xff\xff\x73\x03\x48\xff\xc0\xc3"
#define VBODY "\x41\x5c\x0f\x05\x41\x54\x48\x3d\x01\xf0\xff\xff\x73\x03\x48\xff\xc0\xc3"

START_TEST(test_stubs)
{
	long ppid = getppid();

	ck_assert_int_eq(run(BODY, sizeof BODY - 1, ARCH_GO_ANY, -1, 7, stub_entry), 1008);
	ck_assert_int_eq(run(BODY, sizeof BODY - 1, ARCH_GO_ANY, -1, SYS_getppid, stub_raw),
			 ppid + 1);
	ck_assert_int_eq(run(BODY, sizeof BODY - 1, ARCH_GO_ANY, -1, 100000, stub_raw), -ENOSYS);
	ck_assert_int_eq(run("\xb8\x6e\x00\x00\x00\x0f\x05\xc3", 8, ARCH_GO_FIXED, SYS_getppid, 0,
			     stub_entry), 1000 + SYS_getppid);
	ck_assert_int_eq(run("\xb8\x6e\x00\x00\x00\x0f\x05\xc3", 8, ARCH_GO_FIXED, SYS_getppid, 0,
			     stub_raw), ppid);
	ck_assert_int_eq(run(VBODY, sizeof VBODY - 1, ARCH_GO_VFORK, -1, 7, stub_entry), 1013);
	ck_assert_int_eq(run(VBODY, sizeof VBODY - 1, ARCH_GO_VFORK, -1, SYS_getppid, stub_raw),
			 ppid + 6);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("golang");
	TCase *t = tcase_create("table");

	tcase_add_test(t, test_build);
	tcase_add_test(t, test_functions);
	tcase_add_test(t, test_all_or_none);
	tcase_add_test(t, test_damaged);
	tcase_add_test(t, test_stubs);
	suite_add_tcase(s, t);
	return run_suite(s);
}
#else
int main(void) { return 77; }
#endif
