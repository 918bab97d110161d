/*
 * other_version.h - a process at the other end whose library does not fit ours. HELLO tells its
 * version: type, version and build have the same places in all versions. A process that gets a
 * HELLO of another version answers with its own. Background thread only.
 */
#ifndef RDMASHIM_OTHER_VERSION_H
#define RDMASHIM_OTHER_VERSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "policy/version.h"

struct ctl_msg;

void version_hello(struct ctl_msg *m);	/* becomes our HELLO; index and off stay */
/* Such a record has come: the process is remembered, for some time. */
void version_heard(const struct ctl_msg *m, pid_t pid);
/* It hung up at our HELLO, so often that it is of before version 5, which does not answer. */
void version_silent(pid_t pid);
/* Does it have another one, as far as is remembered? *ret: which, 0: an old one. */
bool version_other(pid_t pid, uint32_t *ret);

#endif
