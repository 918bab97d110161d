/*
 * stdio.c - connections that libc reads and writes from inside: stdio, aio; and files and pipes
 * beside them. Calls: fdopen _IO_fdopen fclose _IO_fclose freopen freopen64 vdprintf
 * __vdprintf_chk dprintf __dprintf_chk
 *        aio_read aio_read64 aio_write aio_write64 lio_listio lio_listio64 splice tee vmsplice
 *        and what stdio has
 * LIBS: -ldl
 */
#include <aio.h>
#include <dirent.h>
#include <stdio_ext.h>
#include <wchar.h>

#include "snip.h"

int __dprintf_chk(int, int, const char *, ...);
int __vdprintf_chk(int, int, const char *, va_list);

static char t[256];

SNIPPET(stdio_both_ways, "fdopen fclose")
{
	FILE *in, *out;

	pair();
	put(a, b, "early ");
	in = fdopen(b, "r");
	out = fdopen(a, "w");
	tell("fdopen %d %d", !!in, !!out);
	fprintf(out, "line %d\n", 1);
	fflush(out);
	SAYV("fgets", fgets(t, sizeof(t), in) != NULL);
	tell("%s", t[0] ? strtok(t, "\n") : "-");
	fputs("no newline", out);
	SAYV("fclose", fclose(out));
	SAYV("fgets", fgets(t, sizeof(t), in) != NULL);
	tell("%s", t);
	SAYV("at the end", fgets(t, sizeof(t), in) != NULL);
	tell("feof %d", feof(in));
	SAYV("fclose", fclose(in));
	SAY("the number is closed", send(a, "x", 1, 0));
}

SNIPPET(stdio_update, "fdopen _IO_fdopen _IO_fclose")
{
	FILE *f, *g;

	pair();
	f = fdopen(a, "r+");
	g = SYM(_IO_fdopen, fdopen)(b, "w+");
	fputs("question\n", f);
	fflush(f);
	SAYV("fgets", fgets(t, sizeof(t), g) != NULL);
	fputs("answer\n", g);
	fflush(g);
	SAYV("fgets", fgets(t, sizeof(t), f) != NULL);
	tell("%s", strtok(t, "\n"));
	SAYV("_IO_fclose", SYM(_IO_fclose, fclose)(f));
	SAYV("end", fgetc(g));
}

SNIPPET(stdio_refused, "fdopen")
{
	pair();
	SAY("bad fd", fdopen(-1, "r") ? 0 : -1);
	SAY("closed fd", fdopen(999, "r") ? 0 : -1);
	SAY("bad mode", fdopen(a, "z") ? 0 : -1);
	alive("after", a, b);
}

SNIPPET(stdio_symbols, "fread fread_unlocked __fread_chk __fread_unlocked_chk __freadable "
		       "__freading fwrite fwrite_unlocked "
		       "__fwritable __fwriting _IO_fread _IO_fwrite")
{
	FILE *in, *out;

	pair();
	in = fdopen(b, "r");
	out = fdopen(a, "w");
	SAYV("fwrite", fwrite("0123456789", 1, 10, out));
	SAYV("fwrite_unlocked", fwrite_unlocked("0123456789", 1, 10, out));
	SAYV("_IO_fwrite", SYM(_IO_fwrite, fwrite)("0123456789", 1, 10, out));
	fflush(out);
	SAYV("fread", fread(t, 1, 10, in));
	SAYV("fread_unlocked", fread_unlocked(t, 1, 10, in));
	SAYV("_IO_fread", SYM(_IO_fread, fread)(t, 1, 2, in));
	SAYV("__fread_chk", ((size_t(*)(void *, size_t, size_t, size_t, FILE *))symbol(
				    "__fread_chk"))(t, sizeof(t), 1, 4, in));
	SAYV("__fread_unlocked_chk", ((size_t(*)(void *, size_t, size_t, size_t, FILE *))symbol(
					     "__fread_unlocked_chk"))(t, sizeof(t), 1, 4, in));
	say_bytes("last", t, 4);
	tell("%d %d %d %d", !!__freadable(in), !!__fwritable(in), !!__freading(in),
	     !!__fwriting(out));
}

SNIPPET(stdio_inside, "_IO_do_write _IO_wdo_write _IO_file_close _IO_file_close_it _IO_file_read "
		      "_IO_file_write _IO_proc_close")
{
	/* libc's own workers, as programs with tables of their own of them reach them */
	ssize_t (*rd)(FILE *, void *, ssize_t) = (void *)symbol("_IO_file_read");
	ssize_t (*wr)(FILE *, const void *, ssize_t) = (void *)symbol("_IO_file_write");
	int (*cl)(FILE *) = (void *)symbol("_IO_file_close");
	FILE *in, *out;

	pair();
	in = fdopen(b, "r");
	out = fdopen(a, "w");
	SAYV("_IO_file_write", wr(out, "hello", 5));
	SAYV("_IO_file_read", rd(in, t, 5));
	tell("others exist %d %d %d %d", symbol("_IO_do_write") != NULL,
	     symbol("_IO_wdo_write") != NULL, symbol("_IO_file_close_it") != NULL,
	     symbol("_IO_proc_close") != NULL);
	SAYV("_IO_file_close", cl(out));
	SAYV("end", rd(in, t, 5));
}

SNIPPET(stdio_wide, "fdopen")
{
	FILE *in, *out;
	wchar_t w[32] = L"";

	pair();
	in = fdopen(b, "r");
	out = fdopen(a, "w");
	fwprintf(out, L"wide %d\n", 5);
	fflush(out);
	tell("fgetws %d", fgetws(w, 32, in) != NULL);
	tell("%d characters, right: %d", (int)wcslen(w), !wcscmp(w, L"wide 5\n"));
}

SNIPPET(stdio_fcloseall, "fcloseall fdopendir")
{
	pid_t p;

	pair();
	SAY("fdopendir", fdopendir(a) ? 0 : -1);
	fflush(stdout);
	p = fork();
	if (!p) {
		FILE *f = fdopen(a, "w");

		fputs("flushed", f);
		fcloseall();
		_exit(0);
	}
	say_end("fcloseall", p);
	SAY("recv", recv(b, t, 7, MSG_WAITALL));
}

SNIPPET(stdio_freopen, "freopen freopen64")
{
	FILE *f;

	pair();
	f = fdopen(a, "w");
	fputs("flushed", f);
	f = freopen("/dev/null", "w", f);
	tell("freopen %d", !!f);
	SAY("recv", recv(b, t, 100, 0));
	SAY("end", recv(b, t, 100, 0));
	pair();
	f = fdopen(a, "w");
	f = freopen64("/dev/null", "w", f);
	SAY("end", recv(b, t, 100, 0));
	tell("freopen of nothing %d", freopen("/nonexistent/x", "r", f) == NULL);
}

static int v_print(int (*fn)(int, int, const char *, va_list), int fd, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = fn ? fn(fd, 1, fmt, ap) : vdprintf(fd, fmt, ap);
	va_end(ap);
	return r;
}
SNIPPET(dprintf_forms, "dprintf vdprintf __dprintf_chk __vdprintf_chk")
{
	pair();
	SAYV("dprintf", dprintf(a, "%d|", 1));
	SAYV("vdprintf", v_print(NULL, a, "%d|", 2));
	SAYV("__dprintf_chk", __dprintf_chk(a, 1, "%d|", 3));
	SAYV("__vdprintf_chk", v_print(__vdprintf_chk, a, "%d|", 4));
	arrive(b, 8);
	SAY("recv", recv(b, t, 100, 0));
	say_bytes("it is", t, 8);
	SAYV("bad fd", dprintf(-1, "x"));
	alive("after", a, b);
}

static void aio_end(const char *what, struct aiocb *cb)
{
	const struct aiocb *list[] = { cb };

	while (aio_error(cb) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	tell("%s: error %d, return %zd", what, aio_error(cb), aio_return(cb));
}
SNIPPET(aio_plain,
	"aio_read aio_write aio_error aio_return aio_suspend aio_cancel aio_init aio_fsync")
{
	struct aiocb r = { .aio_buf = t, .aio_nbytes = 100 }, w = { .aio_buf = "hello",
		.aio_nbytes = 5 };
	struct aioinit init = { 4, 16, 0, 0, 0, 0, 1, 0 };

	aio_init(&init);
	pair();
	r.aio_fildes = b;
	w.aio_fildes = a;
	SAY("aio_read", aio_read(&r));
	SAYV("aio_write", aio_write(&w));
	aio_end("write", &w);
	aio_end("read", &r);
	say_bytes("it is", t, 5);
	SAY("aio_fsync", aio_fsync(O_SYNC, &w));
	aio_end("fsync", &w);
	tell("aio_cancel %d", aio_cancel(b, NULL) == AIO_ALLDONE);
	alive("after", a, b);
}

SNIPPET(aio_64,
	"aio_read64 aio_write64 aio_error64 aio_return64 aio_suspend64 aio_cancel64 aio_fsync64")
{
	struct aiocb64 r = { .aio_buf = t, .aio_nbytes = 100 }, w = { .aio_buf = "hello",
		.aio_nbytes = 5 };
	const struct aiocb64 *list[] = { &r };

	pair();
	r.aio_fildes = b;
	w.aio_fildes = a;
	SAYV("aio_write64", aio_write64(&w));
	SAYV("aio_read64", aio_read64(&r));
	while (aio_error64(&r) == EINPROGRESS)
		aio_suspend64(list, 1, NULL);
	tell("return %zd", aio_return64(&r));
	SAYV("aio_fsync64", aio_fsync64(O_SYNC, &r));
	tell("aio_cancel64 %d", aio_cancel64(a, NULL) >= 0);
	/* they are libc's until then, and ours to give back */
	while (aio_error64(&r) == EINPROGRESS || aio_error64(&w) == EINPROGRESS)
		usleep(1000);
	tell("fsync: %d", aio_error64(&r));
}

SNIPPET(aio_list, "lio_listio lio_listio64")
{
	struct aiocb r = { .aio_buf = t, .aio_nbytes = 5, .aio_lio_opcode = LIO_READ };
	struct aiocb w = { .aio_buf = "hello", .aio_nbytes = 5, .aio_lio_opcode = LIO_WRITE };
	struct aiocb *list[] = { &w, NULL, &r };
	struct aiocb64 w64 = { .aio_buf = "again", .aio_nbytes = 5, .aio_lio_opcode = LIO_WRITE };
	struct aiocb64 *list64[] = { &w64 };

	pair();
	r.aio_fildes = b;
	w.aio_fildes = a;
	w64.aio_fildes = a;
	SAYV("lio_listio", lio_listio(LIO_WAIT, list, 3, NULL));
	tell("returns %zd %zd", aio_return(&w), aio_return(&r));
	SAYV("lio_listio64", lio_listio64(LIO_WAIT, list64, 1, NULL));
	SAY("recv", recv(b, t, 5, MSG_WAITALL));
	SAY("bad mode", lio_listio(99, list, 3, NULL));
}

SNIPPET(splice_ways, "splice")
{
	int pp[2], f = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	off_t off = 0;

	pair();
	if (pipe(pp))
		die("pipe");
	put(a, b, "hello world");
	SAY("stream to pipe", splice(b, NULL, pp[1], NULL, 5, 0));
	SAY("read of the pipe", read(pp[0], t, 10));
	say_bytes("it is", t, 5);
	SAY("the rest by recv", recv(b, t, 10, 0));
	write(pp[1], "from a pipe", 11);
	SAY("pipe to stream", splice(pp[0], NULL, a, NULL, 100, 0));
	arrive(b, 11);
	SAY("recv", recv(b, t, 100, 0));
	nonblocking(b);
	SAY("nothing there", splice(b, NULL, pp[1], NULL, 5, SPLICE_F_NONBLOCK));
	SAY("stream to file", splice(b, NULL, f, NULL, 5, 0));
	SAY("stream to stream", splice(b, NULL, a, NULL, 5, 0));
	SAY("an offset for a stream", splice(b, &off, pp[1], NULL, 5, 0));
	SAY("bad fd", splice(-1, NULL, pp[1], NULL, 5, 0));
	shutdown(a, SHUT_WR);
	until(b, POLLRDHUP);
	SAY("at the end", splice(b, NULL, pp[1], NULL, 5, 0));
}

SNIPPET(tee_vmsplice, "tee vmsplice")
{
	int pp[2];
	struct iovec v = { "x", 1 };

	pair();
	if (pipe(pp))
		die("pipe");
	put(a, b, "x");
	SAY("tee from a stream", tee(b, pp[1], 1, 0));
	SAY("vmsplice to a stream", vmsplice(a, &v, 1, 0));
	SAY("recv", recv(b, t, 10, 0));
	alive("after", a, b);
}
