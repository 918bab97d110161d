/* procfs.c - see procfs.h. */
#include "base/procfs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/sys.h"
#include "policy/trust.h"

bool proc_is_ours(void)
{
	const int how = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;
	struct statx x;

	return sys(SYS_statx, AT_FDCWD, "/", how, STATX_INO, &x) >= 0 &&
	       trust_root_is_first(makedev(x.stx_dev_major, x.stx_dev_minor), x.stx_ino);
}
