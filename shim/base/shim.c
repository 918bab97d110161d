/* shim.c - see shim.h. Locks: none. */
#include "base/shim.h"

#include <sys/auxv.h>

bool shim_on;
_Atomic(const struct policy *) shim_policy;
_Atomic(const struct policy_tunables *) shim_tun;
_Atomic uint32_t shim_mode;
char shim_program[64], shim_policy_file[256], shim_go[STAT_GO];
_Atomic int shim_pid;
_Atomic bool shim_active;

bool shim_wanted(void) { return !getauxval(AT_SECURE) && !policy_switched_off(); }
