/*
 * wrap_stdio.c - wrappers of the calls that hand an fd to stdio or aio, where libc moves the bytes
 * from inside.
 *
 * No lock of its own.
 */
#include "wrap/wrap.h"

#include <stdio_ext.h>

#define ALIAS(alias, name, where) ALIAS_##where(alias, name)
#define ALIAS_socket(alias, name)
#define ALIAS_send(alias, name)
#define ALIAS_recv(alias, name)
#define ALIAS_fd(alias, name)
#define ALIAS_stdio(alias, name) WRAP_ALIAS(alias, name)
#define ALIAS_wait(alias, name)
#define ALIAS_clone(alias, name)
#define ALIAS_signal(alias, name)

/* False: errno is ETIMEDOUT. */
static bool to_stdio(int fd, enum reason why)
{
	struct stream *s = live_stream(fd);

	if (!s || tcp_only_now(s, why))
		return true;
	errno = ETIMEDOUT;
	return false;
}

FILE *wrap_fdopen(int fd, const char *mode)
{
	uint32_t gen;
	struct stream *s = live_stream_gen(fd, &gen);
	FILE *f = fallback_to_read(s, REASON_STDIO) ? REAL(fdopen)(fd, mode) : NULL;

	if (s)
		stream_fallback_over(s, gen, !f, REASON_STDIO);
	return f;
}

/* libc is about to close the file's fd from inside, and to write before it what it has buffered:
 * that must be out before we take the number for closed, or the FIN of a stream whose peer was
 * just about to cut it comes first. */
static void before_fclose(FILE *f)
{
	struct stream *s;
	int fd, e = errno;

	if (!shim_on || !f)
		return;
	fd = fileno(f);
	s = fd >= 0 ? fdtab_stream(fd) : NULL;
	if (s && !foreign_image()) {
		if (!stream_tcp_only(s))
			(void)fall_back_now(s, REASON_STDIO);
		if (__fpending(f))
			(void)fflush(f);
		stream_forget_fd(s, fd);
	}
	errno = e;
}

int wrap_fclose(FILE *f)
{
	before_fclose(f);
	return REAL(fclose)(f);
}

FILE *wrap_freopen(const char *path, const char *mode, FILE *f)
{
	before_fclose(f);
	return REAL(freopen)(path, mode, f);
}

FILE *wrap_freopen64(const char *path, const char *mode, FILE *f)
{
	before_fclose(f);
	return REAL(freopen64)(path, mode, f);
}

int wrap_vdprintf(int fd, const char *fmt, va_list ap)
{
	return to_stdio(fd, REASON_STDIO) ? REAL(vdprintf)(fd, fmt, ap) : -1;
}

int wrap___vdprintf_chk(int fd, int flag, const char *fmt, va_list ap)
{
	return to_stdio(fd, REASON_STDIO) ? REAL(__vdprintf_chk)(fd, flag, fmt, ap) : -1;
}

int wrap_dprintf(int fd, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = wrap_vdprintf(fd, fmt, ap);
	va_end(ap);
	return r;
}

int wrap___dprintf_chk(int fd, int flag, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = wrap___vdprintf_chk(fd, flag, fmt, ap);
	va_end(ap);
	return r;
}

static int aio_one(struct aiocb *cb, int (*call)(struct aiocb *cb))
{
	uint32_t gen;
	struct stream *s = cb ? live_stream_gen(cb->aio_fildes, &gen) : NULL;
	int r = fallback_to_read(s, REASON_FOREIGN_WAIT) ? call(cb) : -1;

	if (s)
		stream_fallback_over(s, gen, r < 0, REASON_FOREIGN_WAIT);
	return r;
}

int wrap_aio_read(struct aiocb *cb)
{
	return aio_one(cb, REAL(aio_read));
}

int wrap_aio_write(struct aiocb *cb)
{
	return aio_one(cb, REAL(aio_write));
}

int wrap_lio_listio(int mode, struct aiocb *const list[], int n, struct sigevent *sig)
{
	/* Some may be made where others fail. */
	for (int i = 0; shim_on && list && (mode == LIO_WAIT || mode == LIO_NOWAIT) && i < n; i++)
		if (list[i] &&
		    (list[i]->aio_lio_opcode == LIO_READ ||
		     list[i]->aio_lio_opcode == LIO_WRITE) &&
		    !to_stdio(list[i]->aio_fildes, REASON_FOREIGN_WAIT))
			return -1;
	return REAL(lio_listio)(mode, list, n, sig);
}

#include "libc/calls.def"
