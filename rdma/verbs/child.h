/*
 * child.h - what a forked child releases.
 *
 * A child has copies of the parent's RDMA descriptors and mappings, and can do nothing with them
 * (ibv_fork_init(3), fork(2)). As long as it keeps one, the parent's queue pairs outlive the
 * parent, and a device that cannot leave its users behind (software devices) cannot be removed:
 * ib_uverbs_remove_one() in drivers/infiniband/core/uverbs_main.c waits for the last of them.
 */
#ifndef RDMASHIM_CHILD_H
#define RDMASHIM_CHILD_H

/*
 * Puts an empty file on each descriptor of RDMA, and memory without access where a device is
 * mapped: number and addresses stay taken, because the libraries give them back at exit. Found
 * by /proc/self, since only a thread that is not here knows what it was opening; without /proc
 * nothing is released. In the child of a fork, before it has threads: system calls only. No
 * errors: what cannot be released stays.
 */
void rdma_child_lets_go(void);

#endif
