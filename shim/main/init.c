/*
 * init.c - start order, environment, policy.
 *
 * The constructor binds the libc symbols and reads the policy; the counter file is made with the
 * first stream (conn/counters.c), threads and sockets of the library's own with the first upgrade.
 */
#include "main/init.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fdtab.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_life.h"
#include "deferred/defer.h"
#include "golang/golang.h"
#include "libc/libc.h"
#include "main/watch.h"
#include "policy/conf.h"
#include "policy/hold.h"
#include "policy/log.h"
#include "policy/stat.h"
#include "policy/trust.h"
#include "policy/version.h"
#include "policy/words.h"
#include "poll/ready.h"
#include "process/fork.h"

struct policy_deps shim_policy_deps;

static bool conf_given;

/* What the user typed: /proc/self/exe would say redis-check-rdb for a redis-server. */
static void find_program(void)
{
	const char *base = program_invocation_short_name;

	for (size_t i = 0; base && i < sizeof shim_program - 1 && base[i]; i++)
		shim_program[i] = base[i];
}

/* It could be there to spoil the log: only whoever asked for warnings is told. */
static void tell_skipped(const struct policy *p)
{
	const char *one;
	unsigned n = policy_skipped(p, &one);

	if (n)
		log_line(LOG_LEVEL_WARN, "%s is left out of the policy: a stranger's, "
			 "in a directory where others may write", one);
}

static void tell_old_names(const struct policy *p)
{
	char text[POLICY_OLD_TEXT];
	uint32_t at;

	for (unsigned i = 0; policy_old_name(p, i, &at, text, sizeof text); i++)
		log_line(LOG_LEVEL_WARN, "%s:%d: %s", policy_at_path(p, at), policy_at_line(at),
			 text);
}

/* NULL: what was read before goes on. */
static const struct policy *load(void)
{
	char text[POLICY_ERROR_TEXT];
	struct policy_error err;
	struct policy *p;
	int r;

	if (!shim_policy_deps.n) {	/* of the first time */
		fmt_string(shim_policy_deps.path[0], POLICY_PATH, "%s", shim_policy_file);
		shim_policy_deps.n = 1;
	}
	watch_loading();
	r = policy_load_watched(shim_policy_file, &shim_policy_deps, &p, &err);
	if (!r) {
		tell_skipped(p);
		tell_old_names(p);
		return p;
	}
	if (trust_root_moved()) {
		log_line(LOG_LEVEL_WARN, "the root directory is another one now, and has no good "
			 "%s: the policy read before goes on", shim_policy_file);
		return NULL;
	}
	if (r == -ENOENT && !conf_given)
		return policy_builtin();
	if (!log_on(LOG_LEVEL_ERROR))	/* a file that is refused cannot ask for silence */
		log_set_level(LOG_LEVEL_ERROR);
	log_line(LOG_LEVEL_ERROR, "%s; everything stays on TCP",
		 policy_error_text(&err, text, sizeof(text)));
	stat_add(STAT_policy_errors, 1);
	return policy_all_tcp(REASON_BAD_POLICY);
}

/* Any thread may be reading tunables, at any time: so each set of them is kept, once. */
static const struct policy_tunables *keep(const struct policy_tunables *t)
{
	static struct kept { struct policy_tunables t; struct kept *next; } *first_kept;
	struct kept *k = first_kept;

	while (k && memcmp(&k->t, t, sizeof *t))
		k = k->next;
	if (k)
		return &k->t;
	k = malloc(sizeof *k);
	if (!k)
		return NULL;
	k->t = *t;
	k->next = first_kept;
	first_kept = k;
	return &k->t;
}

/* False: no memory, the one before goes on. */
static bool use(const struct policy *p)
{
	const struct policy *old = atomic_load(&shim_policy);
	const struct policy_tunables *t = keep(policy_tunables(p));

	if (!t && old) {
		policy_free((struct policy *)p);
		return false;
	}
	atomic_store_explicit(&shim_tun, t ? t : policy_tunables(p), memory_order_release);
	atomic_store_explicit(&shim_policy, t ? p : policy_all_tcp(REASON_NO_MEMORY),
			      memory_order_release);
	atomic_store(&shim_mode, policy_mode_on(p) ? STAT_MODE_ON :
		     p == policy_all_tcp(REASON_BAD_POLICY) ? STAT_MODE_REFUSED : STAT_MODE_OFF);
	if (old && t)
		policy_free((struct policy *)old);
	return true;
}

bool shim_reload_policy(void)
{
	const struct policy *p = load();

	stat_add(STAT_policy_loads, 1);
	if (!p || !use(p))
		return false;
	log_set_level((int)shim_tunables()->log_level);
	atomic_store(&stat_self()->mode, atomic_load(&shim_mode));
	return true;
}

/* A process that has only copied our memory may have copied the lock as another thread held it. */
static void hold_fds(bool hold)
{
	if (foreign_image())
		return;
	if (hold)
		fd_number_lock();
	else
		fd_number_unlock();
}

void shim_log_start(void)
{
	static _Atomic bool told;
	const struct policy *p = atomic_load(&shim_policy);
	char text[LOG_LINE_MAX / 2] = "", value[32];
	size_t at = 0;

	if (!log_on(LOG_LEVEL_PATH) || atomic_exchange(&told, true))
		return;
	for (int k = 0; k < CONF_KEYS && at < sizeof text; k++) {
		uint64_t v = conf_get(policy_tunables(p), (enum conf_key)k);

		if (v != conf_get(policy_tunables(policy_builtin()), (enum conf_key)k))
			at += fmt_string(
				text + at, sizeof text - at, ", %s %s", conf_rows[k].name,
				conf_value_text(conf_rows[k].type, v, value, sizeof value));
	}
	log_line(LOG_LEVEL_PATH, "librdmashim %s in %s, policy %s, mode %s, %zu rules%s",
		 rdmashim_version, shim_program, shim_policy_file,
		 stat_mode_name(atomic_load(&shim_mode)), policy_rules(p), text);
}

__attribute__((constructor)) static void shim_init(void)
{
	size_t i = 0;
	int saved = errno;

	if (!shim_wanted())
		return;
	libc_bind_all();
	loop_serve(&bg_duties);
	link_serve(&bg_link_user);
	bell_tell(&link_bell_events);
	gpu_serve(&device_user);
	if (deferred_begin)
		deferred_begin();
	stream_serve(&ready_pollers);
	find_program();
	conf_given = policy_path_given(false);
	for (const char *p = policy_path(false); *p && i < sizeof shim_policy_file - 1;)
		shim_policy_file[i++] = *p++;
	atomic_store(&shim_pid, (int)sys(SYS_getpid));
	fd_hold = hold_fds;
	log_init(1);
	use(load());
	log_set_level((int)shim_tunables()->log_level);
	stream_plain_start();
	if (fork_handlers_first()) {
		fork_handlers_start();
		shim_on = true;
	}
	if (shim_on && policy_go(atomic_load(&shim_policy), shim_program) && golang_begin() &&
	    !golang_patched())
		shim_stat_first(-1);	/* else nobody would be told: no call of its comes here */
	errno = saved;
}
