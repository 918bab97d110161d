/*
 * conform.c - conform ADDRESS [TEST]...: runs the tests, each in a process of its own, and prints a
 * line for each. ADDRESS is one of this machine's that has a device. Exit status 1: one failed.
 */
#include "conform.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>

struct sockaddr_storage conform_addr;
bool conform_iwarp, conform_software;

/* What siw (6.1) is known not to do, by test. */
static const struct { const char *test, *why; } known[] = {
	{ "read_then_send", "a send may be completed before a READ that was posted earlier" },
	{ "events", "solicited events do not come" },
	{ "flush", "receives are not flushed" },
	{ "read_bad_key", "requests behind a READ that is refused succeed, or are silent" },
	{ "read_beyond", "as read_bad_key" },
	{ "read_before", "as read_bad_key" },
	{ "read_wraps", "as read_bad_key" },
	{ "read_other_pd", "as read_bad_key" },
	{ "read_deregistered", "as read_bad_key" },
	{ "read_not_permitted", "as read_bad_key" },
};
const char *conform_name;
struct rdma_event_channel *conform_channel;

void conform_fail(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	printf("FAIL %s: %s:%d: ", conform_name, file, line);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf(" (errno %s)\n", strerror(errno));
	fflush(stdout);
	_exit(4);
}

void conform_skip(const char *why)
{
	printf("skip %s: %s\n", conform_name, why);
	fflush(stdout);
	_exit(77);
}

static bool wanted(const char *name, char **names)
{
	for (char **n = names; *n; n++)
		if (!strcmp(*n, name))
			return true;
	return !*names;
}

static void skip_known(const struct test *t)
{
	for (unsigned i = 0; conform_iwarp && conform_software && i < sizeof known / sizeof *known;
	     i++)
		if (!strcmp(known[i].test, t->name))
			conform_skip(known[i].why);
}

/* In a process of its own: tests fork, and then nothing may be open. */
static int kind(void)
{
	struct rdma_cm_id *id;
	const char *name;
	int status;

	if (fork()) {
		wait(&status);
		if (!WIFEXITED(status) || WEXITSTATUS(status) > 3)
			_exit(1);
		return WEXITSTATUS(status);
	}
	conform_name = "start";
	CHECK(conform_channel = rdma_create_event_channel());
	CHECK(!rdma_create_id(conform_channel, &id, NULL, RDMA_PS_TCP));
	if (rdma_bind_addr(id, (struct sockaddr *)&conform_addr))
		FAIL("rdma_bind_addr");
	CHECK(id->verbs);
	name = ibv_get_device_name(id->verbs->device);
	_exit((id->verbs->device->transport_type == IBV_TRANSPORT_IWARP) |
	      (!strncmp(name, "rxe", 3) || !strncmp(name, "siw", 3)) << 1);
}

static int run_one(const struct test *t)
{
	struct timespec from, to;
	int status;
	pid_t pid;

	fflush(stdout);
	clock_gettime(CLOCK_MONOTONIC, &from);
	pid = fork();
	if (!pid) {
		conform_name = t->name;
		alarm(60);
		skip_known(t);
		if (!(conform_channel = rdma_create_event_channel()))
			FAIL("rdma_create_event_channel");
		t->run();
		rdma_destroy_event_channel(conform_channel);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	clock_gettime(CLOCK_MONOTONIC, &to);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return 0;
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		printf("ok %s (%.2f s)\n", t->name,
		       (double)(to.tv_sec - from.tv_sec) +
			       (double)(to.tv_nsec - from.tv_nsec) / 1e9);
	else if (WIFSIGNALED(status))
		printf("FAIL %s: signal %d\n", t->name, WTERMSIG(status));
	return status != 0;
}

int main(int argc, char **argv)
{
	const struct test *const all[] = { data_tests, error_tests, cm_tests,
					   getenv("NICD") ? fault_tests : NULL,
					   getenv("NICD") ? cast_tests : NULL };
	struct addrinfo *a, hints = { .ai_flags = AI_NUMERICHOST };
	int failed = 0, ran = 0, k;

	if (argc < 2 || getaddrinfo(argv[1], NULL, &hints, &a)) {
		fprintf(stderr, "usage: conform ADDRESS [TEST]...\n");
		return 2;
	}
	memcpy(&conform_addr, a->ai_addr, a->ai_addrlen);
	setvbuf(stdout, NULL, _IOLBF, 0);
	k = kind();
	conform_iwarp = k & 1;
	conform_software = k & 2;
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		for (const struct test *t = all[i]; t && t->name; t++)
			if (wanted(t->name, argv + 2)) {
				ran++;
				failed += run_one(t);
			}
	printf("%d run, %d failed\n", ran, failed);
	return failed || !ran;
}
