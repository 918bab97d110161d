/*
 * allocator.c - an allocator that begins as jemalloc does: with its first block, before any
 * constructor has run, it reads files, asks for sockets, registers fork handlers. Whoever allocates
 * within that would wait for it for ever: here it ends the program with 3.
 *
 * With it comes a stand-in for dlsym() of glibc before 2.34, which allocates its error's place.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define ROOM (64ul << 20)

static char *next, *end;
static int begins;

static void nothing(void) { }

/* Past everybody. */
static long raw(long n, long a, long b, long c)
{
	__asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return n;
}

static void allocated_within(void)
{
	static const char text[] = "allocates while the allocator begins\n";

	raw(SYS_write, 2, (long)text, sizeof text - 1);
	raw(SYS_exit_group, 3, 0, 0);
}

/* What an allocator may do to find out where it is, and more. */
static void begin(void)
{
	char text[64];
	int fd, p[2], ep;

	fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	read(fd, text, sizeof text);
	readv(fd, NULL, 0);
	fcntl(fd, F_GETFD);
	close(dup(fd));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){ 1 }, sizeof(int));
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &(int){ 0 }, &(socklen_t){ sizeof(int) });
	close(fd);
	pipe2(p, O_CLOEXEC);
	write(p[1], "x", 1);
	poll(&(struct pollfd){ .fd = p[0], .events = POLLIN }, 1, 0);
	ep = epoll_create1(EPOLL_CLOEXEC);
	epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &(struct epoll_event){ .events = EPOLLIN });
	epoll_wait(ep, &(struct epoll_event){ 0 }, 1, 0);
	close(ep);
	close(p[0]);
	close(p[1]);
	sigaction(SIGUSR2, NULL, &(struct sigaction){ 0 });
	prctl(PR_GET_DUMPABLE);
	syscall(SYS_getpid);
	pthread_atfork(nothing, nothing, nothing);
}

void *memalign(size_t align, size_t n)
{
	char *p;

	if (begins == 1)
		allocated_within();
	if (!begins) {
		begins = 1;
		next = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		end = next + ROOM;
		begin();
		begins = 2;
	}
	align = align < 16 ? 16 : align;
	n += 16;
	for (;;) {
		char *was = __atomic_load_n(&next, __ATOMIC_RELAXED);

		p = (char *)(((uintptr_t)was + 16 + align - 1) & -align);
		if (p + n > end)
			return NULL;
		if (__atomic_compare_exchange_n(&next, &was, p + n, 0, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			break;
	}
	((size_t *)p)[-1] = n - 16;
	return p;
}

void *malloc(size_t n) { return memalign(16, n); }
void *calloc(size_t n, size_t of) { return memalign(16, n * of); }	/* new memory is zero */
void *aligned_alloc(size_t align, size_t n) { return memalign(align, n); }
void free(void *p) { (void)p; }

int posix_memalign(void **ret, size_t align, size_t n)
{
	*ret = memalign(align, n);
	return *ret ? 0 : 12;
}

void *realloc(void *p, size_t n)
{
	void *q = memalign(16, n);
	size_t had = p ? ((size_t *)p)[-1] : 0;

	return q && p ? memcpy(q, p, had < n ? had : n) : q;
}

/* (What comes after its caller it cannot say: the first of all.) */
void *dlsym(void *handle, const char *name)
{
	free(calloc(1, 32));
	return dlvsym(handle == RTLD_NEXT ? RTLD_DEFAULT : handle, name, "GLIBC_2.2.5");
}
