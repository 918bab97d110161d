/*
 * uring.h - io_uring in the program, as far as libc's syscall() makes its calls (libuv does so;
 * liburing has calls of its own, which are not seen).
 *
 * What a ring is told moves bytes, waits for sockets and closes them past all wrappers. So each
 * submission is read before the kernel reads it: a stream that it names goes to TCP for good,
 * and registrations with epoll, for which libuv has a ring, are made as by epoll_ctl(). Where
 * that cannot be, because the kernel takes submissions by itself (IORING_SETUP_SQPOLL) or finds
 * them by ways that are not followed here, all connections stay on TCP from then on. Source:
 * io_uring_setup(2), io_uring_enter(2), io_uring_register(2), linux/io_uring.h.
 *
 * Any thread. No errors: what cannot be read counts as what names all streams. errno is not
 * touched.
 */
#ifndef RDMASHIM_URING_H
#define RDMASHIM_URING_H

struct io_uring_params;

/* after the call, which gave fd */
void uring_made(int fd, const struct io_uring_params *p);
void uring_enter(int fd, unsigned submits, unsigned flags);		/* before the call */
void uring_register(unsigned op); /* after the call, which has not failed */

#endif
