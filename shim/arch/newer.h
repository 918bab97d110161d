/*
 * newer.h - names that headers of older systems lack, Debian 11's (glibc 2.31, Linux 5.10) as the
 * oldest. To be included behind all others. Whether the kernel knows them is asked at run time.
 */
#ifndef RDMASHIM_NEWER_H
#define RDMASHIM_NEWER_H

#include <sys/syscall.h>

/* The same numbers on all machines. */
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif
#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif
#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif
#ifndef SYS_lsm_set_self_attr
#define SYS_lsm_set_self_attr 460
#endif

#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#define SO_BUSY_POLL_BUDGET 70
#endif
#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif
#ifndef SO_TXREHASH
#define SO_TXREHASH 74
#endif

/* of <linux/io_uring.h> */
#ifndef IORING_SETUP_SUBMIT_ALL
#define IORING_SETUP_SUBMIT_ALL   (1U << 7)
#endif
#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#define IORING_SETUP_TASKRUN_FLAG (1U << 9)
#define IORING_SETUP_SQE128       (1U << 10)
#define IORING_SETUP_CQE32        (1U << 11)
#endif
#ifndef IOSQE_CQE_SKIP_SUCCESS
#define IOSQE_CQE_SKIP_SUCCESS    (1U << 6)
#endif

/* of <linux/userfaultfd.h> */
#if defined(UFFD_API) && !defined(UFFDIO_CONTINUE)
#define UFFD_USER_MODE_ONLY 1
#define UFFD_FEATURE_MINOR_SHMEM (1 << 10)
#define UFFDIO_REGISTER_MODE_MINOR ((__u64)1 << 2)
struct uffdio_continue { struct uffdio_range range; __u64 mode; __s64 mapped; };
#define UFFDIO_CONTINUE _IOWR(UFFDIO, 7, struct uffdio_continue)
#endif
#if defined(UFFD_API) && !defined(UFFD_FEATURE_WP_HUGETLBFS_SHMEM)
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

#endif
