/*
 * test_earn.c - which connections earn an upgrade, and what those before them have to do with
 * it. The sockets are real.
 *
 * LINK: shim/conn/earn.c shim/base/sock.c shim/base/lock.c
 */
#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../policy/places.h"
#include "../../policy/stat.h"
#include "../../shim/conn/stream_life.h"
#include "../../shim/conn/stream_send.h"
#include "../../shim/base/shim.h"
#include "suite.h"

static struct policy_tunables tun;
_Atomic(const struct policy_tunables *) shim_tun;
_Atomic int shim_pid;
char shim_program[64] = "one";
static int said_short;

void stream_earned(struct stream *s) { atomic_store(&s->upgrade, 1); }
void stream_mark(struct stream *s) { s->marked = 1; }
void hold_begin(struct stream *s) { s->snd.hold.on = 1; }

static int listener(const char *at)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	int l = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, at, &a.sin_addr);
	ck_assert(!bind(l, (void *)&a, sizeof a) && !listen(l, 8));
	return l;
}

static int one, other;		/* listeners */

static void begin(void)
{
	tun = (struct policy_tunables){ .earn_bytes = 65536, .earn_rounds = 16,
					.earn_lifetime = 1 };
	atomic_store(&shim_tun, &tun);
	atomic_store(&shim_pid, getpid());
	one = listener("127.0.0.1");
	other = listener("127.0.0.1");
}

/* One end of a connection to l. */
struct end { struct stream s; struct stat_row row; int fd, rest; };

static struct end *make(int l, enum stream_role role)
{
	struct end *e = calloc(1, sizeof *e);
	struct sockaddr_in a;
	socklen_t len = sizeof a;
	int c = socket(AF_INET, SOCK_STREAM, 0), s;

	getsockname(l, (void *)&a, &len);
	ck_assert_int_eq(connect(c, (void *)&a, sizeof a), 0);
	s = accept(l, NULL, NULL);
	e->fd = role == ROLE_CLIENT ? c : s;
	e->rest = role == ROLE_CLIENT ? s : c;
	e->s.role = (uint8_t)role;
	atomic_store(&e->s.fd, e->fd);
	atomic_store(&e->s.row, &e->row);
	return e;
}

/* So many turns of 100 bytes each way, as long as it is on TCP; the rest on the fast path. When
 * it was upgraded, or 0. */
static unsigned turns(struct end *e, unsigned n)
{
	unsigned when = 0;

	for (unsigned i = 1; i <= n; i++)
		for (uint8_t way = 1; way <= 2; way++) {
			bool fast = atomic_load(&e->s.upgrade);

			atomic_fetch_add(way == 1 ? &e->row.tx_bytes[fast ? PATH_SHM : PATH_TCP]
						  : &e->row.rx_bytes[fast ? PATH_SHM : PATH_TCP],
					 100);
			if (!fast)
				earn_moved(&e->s, 100, way);
			if (!when && atomic_load(&e->s.upgrade))
				when = i;
		}
	return when;
}

static void end(struct end *e)
{
	said_short += e->row.reason == REASON_SHORT_LIVED;
	earn_over(&e->s);
	earn_tell();
	close(e->fd);
	close(e->rest);
	free(e);
}

static unsigned one_of(int l, enum stream_role role, unsigned n)
{
	struct end *e = make(l, role);
	unsigned when = turns(e, n);

	end(e);
	return when;
}

static const enum stream_role roles[] = { ROLE_CLIENT, ROLE_SERVER };

START_TEST(short_ones)
{
	enum stream_role role = roles[_i];

	for (int i = 0; i < 16; i++)
		ck_assert_uint_eq(one_of(one, role, 30), 16);
	ck_assert_int_eq(said_short, 0);
	for (int i = 0; i < 50; i++)
		ck_assert_uint_eq(one_of(one, role, 30), 0);
	ck_assert_int_eq(said_short, 50);
	/* nothing is held against another port, */
	ck_assert_uint_eq(one_of(other, role, 30), 16);
	/* or against one that we have accepted from */
	ck_assert_uint_eq(one_of(one, roles[!_i], 30), 16);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(one_of(one, role, 1000), 256);	/* they live on */
	ck_assert_uint_eq(one_of(one, role, 1000), 256);
	ck_assert_uint_eq(one_of(one, role, 30), 16);
	ck_assert_uint_eq(one_of(one, role, 30), 16);
}
END_TEST

/* Every fifth lives on: none of them has to wait. */
START_TEST(mixed)
{
	for (int i = 0; i < 300; i++)
		ck_assert_uint_eq(one_of(one, ROLE_SERVER, i % 5 ? 30 : 300), 16);
}
END_TEST

START_TEST(less_is_not_counted)
{
	for (int i = 0; i < 100; i++)
		ck_assert_uint_eq(one_of(one, ROLE_SERVER, 10), 0);
	ck_assert_uint_eq(one_of(one, ROLE_SERVER, 30), 16);
}
END_TEST

START_TEST(off_and_at_once)
{
	for (int i = 0; i < 40; i++)
		one_of(one, ROLE_SERVER, 30);
	tun.earn_lifetime = 0;
	ck_assert_uint_eq(one_of(one, ROLE_SERVER, 30), 16);
	tun.earn_lifetime = 1;
	ck_assert_uint_eq(one_of(one, ROLE_SERVER, 30), 0);
	tun.earn_bytes = 0;
	for (int i = 0; i < 40; i++)
		ck_assert_uint_eq(one_of(one, ROLE_SERVER, 2), 1);
	tun.earn_bytes = 65536;
	tun.earn_rounds = 0;
	for (int i = 0; i < 40; i++)
		ck_assert_uint_eq(one_of(one, ROLE_SERVER, 2), 1);
	said_short = 0;
	for (int i = 0; i < 40; i++) {		/* asked for before a byte was moved */
		struct end *e = make(other, ROLE_SERVER);

		earn_asked(&e->s);
		end(e);
	}
	tun.earn_rounds = 16;
	ck_assert_uint_eq(one_of(other, ROLE_SERVER, 30), 16);
	ck_assert_int_eq(said_short, 0);
}
END_TEST

/* A call that may move much is worth as much before it is made. */
START_TEST(large_calls)
{
	struct end *e;

	for (int i = 0; i < 40; i++) {
		e = make(one, ROLE_CLIENT);
		earn_will_move(&e->s, 100000, 2);
		ck_assert_int_eq(atomic_load(&e->s.upgrade), i < 16);
		atomic_fetch_add(&e->row.tx_bytes[PATH_SHM], 100000);
		end(e);
	}
	e = make(one, ROLE_CLIENT);
	earn_will_move(&e->s, 16 * 65536, 2);
	ck_assert_int_eq(atomic_load(&e->s.upgrade), 1);
	end(e);
	for (int i = 0; i < 40; i++) {		/* what such a call would move is not moved yet */
		e = make(one, ROLE_CLIENT);
		earn_will_move(&e->s, 16 * 65536, 2);
		end(e);
	}
	ck_assert_uint_eq(one_of(one, ROLE_CLIENT, 30), 0);
}
END_TEST

/* The other end asked before this one had earned: it counts here, too. */
START_TEST(asked)
{
	for (int i = 0; i < 16; i++) {
		struct end *e = make(one, ROLE_SERVER);

		ck_assert_uint_eq(turns(e, 15), 0);
		earn_asked(&e->s);
		atomic_store(&e->s.upgrade, 1);
		turns(e, 15);
		end(e);
	}
	ck_assert_uint_eq(one_of(one, ROLE_SERVER, 30), 0);
}
END_TEST

/* Those that live on are known as such before they end. */
START_TEST(still_living)
{
	struct end *e[5];

	for (int i = 0; i < 40; i++)
		one_of(one, ROLE_SERVER, 30);
	for (int i = 0; i < 5; i++) {
		e[i] = make(one, ROLE_SERVER);
		ck_assert_uint_eq(turns(e[i], 300), 256);
	}
	ck_assert_uint_eq(one_of(one, ROLE_SERVER, 30), 16);
	for (int i = 0; i < 5; i++)
		end(e[i]);
	/* and count once: 32 - 20 + 2 points */
	ck_assert_uint_eq(one_of(one, ROLE_SERVER, 30), 16);
	ck_assert_uint_eq(one_of(one, ROLE_SERVER, 30), 16);
	ck_assert_uint_eq(one_of(one, ROLE_SERVER, 30), 16);
	ck_assert_uint_eq(one_of(one, ROLE_SERVER, 30), 0);
}
END_TEST

/* There are more places than entries: nobody gets the points of another. */
START_TEST(many_places)
{
	for (uint32_t i = 0; i < 40; i++)
		one_of(one, ROLE_CLIENT, 30);
	for (uint32_t i = 0; i < 2000; i++) {
		struct sockaddr_in a = { .sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(0x7f010000 + i),
						 .sin_port = htons(9) };
		struct end *e = make(one, ROLE_CLIENT);
		int fd = socket(AF_INET, SOCK_DGRAM, 0);

		ck_assert_int_eq(connect(fd, (void *)&a, sizeof a), 0);
		dup2(fd, e->fd);
		close(fd);
		ck_assert_uint_eq(turns(e, 30), 16);
		end(e);
	}
}
END_TEST

/* Nobody was found with what it had earned by: again when it has moved as much as a wary end
 * asks for; counted on in the meantime. */
START_TEST(second_search)
{
	struct end *e = make(one, ROLE_CLIENT);

	ck_assert_uint_eq(turns(e, 16), 16);
	for (int i = 0; i < 40; i++)		/* the search is under way */
		for (uint8_t way = 1; way <= 2; way++)
			earn_moved(&e->s, 100, way);
	ck_assert(earn_again(&e->s));
	atomic_store(&e->s.upgrade, 0);
	ck_assert_uint_eq(turns(e, 300), 200);
	end(e);
}
END_TEST

/* Four times in all, each after 16 times as much as the last; what it has moved already is no
 * reason for the next. */
START_TEST(last_search)
{
	struct end *e = make(one, ROLE_CLIENT);

	ck_assert_uint_eq(turns(e, 16), 16);
	ck_assert(earn_again(&e->s));
	atomic_store(&e->s.upgrade, 0);
	ck_assert_uint_eq(turns(e, 300), 240);
	earn_moved(&e->s, 65536 * 256, 1);
	ck_assert(earn_again(&e->s));
	atomic_store(&e->s.upgrade, 0);
	ck_assert_uint_eq(turns(e, 1000), 0);
	earn_moved(&e->s, 65536ull * 4096 - e->s.earn.bytes - 1, 2);
	ck_assert(!atomic_load(&e->s.upgrade));
	earn_moved(&e->s, 1, 2);
	ck_assert(atomic_load(&e->s.upgrade));
	ck_assert(!earn_again(&e->s));
	end(e);
}
END_TEST

/* Where the policy says at once it is searched for again, too, and not at once. */
START_TEST(again_at_once)
{
	struct end *e = make(one, ROLE_CLIENT);

	tun.earn_bytes = tun.earn_rounds = 0;
	ck_assert_uint_eq(turns(e, 1), 1);
	ck_assert(earn_again(&e->s));
	atomic_store(&e->s.upgrade, 0);
	ck_assert_uint_eq(turns(e, 100), 16);	/* of the first one only the send was seen */
	end(e);
}
END_TEST

/* In a forked child it has a row of its own, with nothing in it: that says nothing of how long
 * it lived. */
START_TEST(anew)
{
	for (int i = 0; i < 40; i++) {
		struct end *e = make(one, ROLE_SERVER);

		turns(e, 300);
		memset(&e->row, 0, sizeof e->row);
		earn_anew(&e->s);
		end(e);
	}
	ck_assert_uint_eq(one_of(one, ROLE_SERVER, 30), 16);
}
END_TEST

/* A socket that cannot be asked for its names. */
START_TEST(nowhere)
{
	for (int i = 0; i < 40; i++) {
		struct end *e = make(one, ROLE_SERVER);

		atomic_store(&e->s.fd, -1);
		ck_assert_uint_eq(turns(e, 30), 16);
		end(e);
	}
}
END_TEST

/* ---- what processes share ---- */

static char dir[] = "/tmp/test_earn.XXXXXX", file[64];

static void begin_shared(void)
{
	begin();
	strcpy(dir, "/tmp/test_earn.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	setenv("RDMASHIM_STAT_DIR", dir, 1);
	snprintf(file, sizeof file, "%s/" PLACES_FILE, dir);
	tun.earn_share = 1;
}

static void end_shared(void)
{
	unlink(file);
	rmdir(dir);
}

/* By a process of its own, which knows nothing but what is in the file. */
static unsigned by_another(int l, enum stream_role role, unsigned n, unsigned times)
{
	int status;

	if (!fork()) {
		unsigned when = 0;

		earn_share_begin();
		while (times--)
			when = one_of(l, role, n);
		_exit((int)(when < 200 ? when : 200));
	}
	wait(&status);
	ck_assert(WIFEXITED(status));
	return (unsigned)WEXITSTATUS(status);
}

START_TEST(known_to_all)
{
	enum stream_role role = roles[_i];

	ck_assert_uint_eq(by_another(one, role, 1000, 1), 16);
	ck_assert_uint_eq(by_another(one, role, 1000, 3), 16);
	ck_assert_uint_eq(by_another(one, role, 1000, 1), 1);		/* four have lived on */
	ck_assert_uint_eq(by_another(other, role, 1000, 1), 16);
	ck_assert_uint_eq(by_another(one, roles[!_i], 1000, 1), 16);
	strcpy(shim_program, "two");
	ck_assert_uint_eq(by_another(one, role, 1000, 1), 16);
	strcpy(shim_program, "one");
	ck_assert_uint_eq(by_another(one, role, 1000, 1), 1);
	tun.earn_share = 0;
	ck_assert_uint_eq(by_another(one, role, 1000, 1), 16);
}
END_TEST

/* A place whose connections become short is searched for a few times more, and then it is wary,
 * as all short ones are. */
START_TEST(become_short)
{
	unsigned searched = 0;

	by_another(one, ROLE_SERVER, 1000, 40);
	for (int i = 0; i < 100; i++)
		searched += by_another(one, ROLE_SERVER, 2, 1) != 0;
	ck_assert_uint_ge(searched, 1);
	ck_assert_uint_le(searched, 4);
	ck_assert_uint_eq(by_another(one, ROLE_SERVER, 30, 30), 0);	/* learned by all, too */
}
END_TEST

START_TEST(short_cost_nothing)
{
	for (int i = 0; i < 20; i++)
		ck_assert_uint_eq(by_another(one, ROLE_CLIENT, 10, 1), 0);
}
END_TEST

static const uint64_t none[PLACES / 64];
static uint64_t words[PLACES];

static bool usable(void) { return places_exchange(getuid(), none, words); }

/* Not ours, or not what it should be: no file is used, and nothing is done to it. */
START_TEST(strange_files)
{
	struct stat st;
	int fd;

	words[7] = 7;
	ck_assert(!mkfifo(file, 0600));
	ck_assert(!usable());
	unlink(file);
	ck_assert(!symlink("/etc/passwd", file));
	ck_assert(!usable());
	unlink(file);
	fd = open(file, O_CREAT | O_RDWR, 0600);
	ck_assert(!ftruncate(fd, PLACES * 8 + 1));
	ck_assert(!usable());
	ck_assert(!ftruncate(fd, 0) && !fchmod(fd, 0622));
	ck_assert(!usable());
	ck_assert(!fstat(fd, &st) && !st.st_size && words[7] == 7);
	ck_assert(!fchmod(fd, 0600));
	ck_assert(usable() && !words[7]);
	ck_assert(!fstat(fd, &st) && st.st_size == PLACES * 8);
	close(fd);
	unlink(file);
	ck_assert(usable() && access(file, F_OK));	/* made by who has something to tell */
	ck_assert(!chmod(dir, 0755));
	ck_assert(!usable());
	ck_assert(access(file, F_OK));
}
END_TEST

/* Who has given its user up, as a child or by itself, has the file no more: neither a descriptor
 * nor a mapping. */
START_TEST(no_heirloom)
{
	char line[512], path[64];
	FILE *maps;
	int status;

	by_another(one, ROLE_SERVER, 1000, 1);
	if (!fork()) {
		earn_share_begin();
		one_of(one, ROLE_SERVER, 1000);
		maps = fopen("/proc/self/maps", "re");
		while (maps && fgets(line, sizeof line, maps))
			if (strstr(line, PLACES_FILE))
				_exit(1);
		for (int fd = 0; fd < 64; fd++) {
			snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
			if (readlink(path, line, sizeof line - 1) > 0 && strstr(line, PLACES_FILE))
				_exit(2);
		}
		unlink(file);
		if (setgid(31337) || setuid(31337))
			_exit(77);
		one_of(one, ROLE_CLIENT, 1000);
		_exit(access(file, F_OK) ? 0 : 3);
	}
	wait(&status);
	ck_assert_msg(!status || status == 77 << 8, "%d", status >> 8);
}
END_TEST

/* Whatever it says costs a search, or a later one. */
START_TEST(lies)
{
	static uint64_t all[PLACES];
	uint64_t every[PLACES / 64];
	unsigned when;

	memset(every, 0xff, sizeof every);
	by_another(one, ROLE_SERVER, 1000, 1);
	for (int i = 0; i < 300; i++) {
		ck_assert(places_exchange(getuid(), none, all));
		for (int k = 0; k < PLACES; k++)
			if (all[k])
				all[k] = (all[k] >> 32 << 32) |
					 (uint32_t)(i < 3 ? -i : random() << 8 ^ random());
		ck_assert(places_exchange(getuid(), every, all));
		when = by_another(one, ROLE_SERVER, 1000, 1);
		/* 200: 256 */
		ck_assert_msg(when == 1 || when == 16 || when == 200, "%u", when);
	}
	for (int i = 0; i < 60; i++)	/* and is put right */
		by_another(one, ROLE_SERVER, 1000, 1);
	ck_assert_uint_eq(by_another(one, ROLE_SERVER, 1000, 1), 1);
}
END_TEST

/* Who closes a stream, or takes it from its link, has its locks: a file may be slow. */
START_TEST(told_without_locks)
{
	struct end *e = make(one, ROLE_SERVER);

	earn_share_begin();
	turns(e, 1000);
	earn_over(&e->s);
	ck_assert(access(file, F_OK));
	earn_tell();
	ck_assert(!access(file, F_OK));
	end(e);
}
END_TEST

/* One that is cut short while it is used ends nobody. */
START_TEST(cut_short)
{
	unsigned when;

	for (int i = 0; i < 5; i++)
		by_another(one, ROLE_SERVER, 1000, 1);
	ck_assert_uint_eq(by_another(one, ROLE_SERVER, 1000, 1), 1);
	ck_assert(!truncate(file, 100));
	when = by_another(one, ROLE_SERVER, 1000, 1);
	ck_assert_uint_eq(when, 16);
}
END_TEST

static bool told(void)
{
	static const uint64_t one_changed[PLACES / 64] = { 1 };

	return places_exchange(getuid(), one_changed, words);
}

/* Where there is no room the file is made in part; whoever comes when there is some makes the
 * rest. */
START_TEST(no_room)
{
	struct stat st;

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("few", dir, "tmpfs", 0, "mode=0700,size=4k"))
		return;		/* not root */
	ck_assert(!told());
	ck_assert(!stat(file, &st) && st.st_size && st.st_size < PLACES * 8);
	ck_assert(!mount(NULL, dir, NULL, MS_REMOUNT, "size=1m"));
	ck_assert(told());
	ck_assert(!stat(file, &st) && st.st_size == PLACES * 8);
	ck_assert(!truncate(file, 100));
	ck_assert(told());
}
END_TEST

int main(void)
{
	Suite *s = suite_create("earn");
	TCase *t = tcase_create("earn");

	tcase_add_checked_fixture(t, begin, NULL);
	tcase_add_loop_test(t, short_ones, 0, 2);
	tcase_add_test(t, mixed);
	tcase_add_test(t, less_is_not_counted);
	tcase_add_test(t, off_and_at_once);
	tcase_add_test(t, large_calls);
	tcase_add_test(t, asked);
	tcase_add_test(t, still_living);
	tcase_add_test(t, many_places);
	tcase_add_test(t, second_search);
	tcase_add_test(t, last_search);
	tcase_add_test(t, again_at_once);
	tcase_add_test(t, anew);
	tcase_add_test(t, nowhere);
	suite_add_tcase(s, t);
	t = tcase_create("shared");
	tcase_add_checked_fixture(t, begin_shared, end_shared);
	tcase_add_loop_test(t, known_to_all, 0, 2);
	tcase_add_test(t, become_short);
	tcase_add_test(t, short_cost_nothing);
	tcase_add_test(t, strange_files);
	tcase_add_test(t, lies);
	tcase_add_test(t, no_heirloom);
	tcase_add_test(t, cut_short);
	tcase_add_test(t, no_room);
	tcase_add_test(t, told_without_locks);
	tcase_set_timeout(t, 30);
	suite_add_tcase(s, t);
	return run_suite(s);
}
