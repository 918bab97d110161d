/*
 * rdmastat_edit.c - `rdmastat policy set|unset`. An edit is made on a copy, parsed, and
 * renamed into place: running programs see the old file or the new one, and never one with an
 * error that this made. Two edits at a time: the directory is locked (flock).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "policy/conf.h"
#include "policy/renamed.h"
#include "policy/rule.h"
#include "policy/words.h"
#include "ground/rdmastat.h"
#include "commands/rdmastat_grow.h"

#define NETWORKS "rdma_networks"	/* the keys with several values */
#define VIA "rdma_via"
#define USERS "peer_users"

static bool has_several(const char *key)
{
	return !strcmp(key, NETWORKS) || !strcmp(key, VIA) || !strcmp(key, USERS);
}

/* ---- lines ---- */

/* The first word of a line, behind blanks and, if `comment`, behind one #. */
static size_t first_word(const char *line, bool comment, const char **word)
{
	line += strspn(line, " \t");
	if (comment && *line == '#')
		line++;
	*word = line;
	return strcspn(line, " \t\r\n#");
}

/* Is it the key, or the old name of it? */
static bool names_key(const char *word, size_t n, const char *key)
{
	const struct old_name *old = old_name("key", word, n);

	return old ? !strcmp(old->now, key) : word_is(word, n, key);
}

struct edit {
	const char *key, *value;	/* value NULL: take it out */
	bool done;
	struct text old;		/* the value there was; of several lines all of them */
};

/* Adds the value on `line` to what was set. */
static void note_old(struct edit *e, const char *line)
{
	const char *word;
	size_t n = first_word(line, false, &word);

	word += n + strspn(word + n, " \t");
	n = strcspn(word, "\r\n#");
	while (n && strchr(" \t", word[n - 1]))
		n--;
	if (e->old.len)
		put(&e->old, " ", 1);
	put(&e->old, word, n);
}

/* `line` with its value replaced and whatever comment stands behind it kept. */
static void put_changed(struct text *t, const struct edit *e, const char *line, size_t len)
{
	const char *word, *hash = memchr(line, '#', len);

	first_word(line, false, &word);
	put(t, line, (size_t)(word - line));
	putf(t, "%s %s", e->key, e->value);
	if (hash) {
		put(t, " ", 1);
		put(t, hash, len - (size_t)(hash - line));
	} else {
		put(t, "\n", 1);
	}
}

/* Where a new line belongs: behind the comment that shows the default, else before the first
 * rule or section, else at the end. */
static size_t place_for(const char *s, const char *key)
{
	const char *line, *word, *rule = NULL;
	size_t n;

	for (line = s; *line;
	     line = *strchrnul(line, '\n') ? strchrnul(line, '\n') + 1 : strchrnul(line, '\n')) {
		n = first_word(line, true, &word);
		if (names_key(word, n, key) && word > line && word[-1] == '#')
			return (size_t)(*strchrnul(line, '\n') ? strchrnul(line, '\n') + 1 - s
							       : strchrnul(line, '\n') - s);
		n = first_word(line, false, &word);
		if (!rule && (word_is(word, n, "use") || word_is(word, n, "program")))
			rule = line;
	}
	return rule ? (size_t)(rule - s) : strlen(s);
}

static void apply(const struct text *from, struct edit *e, struct text *to)
{
	const char *line, *end, *word;
	size_t at, n;

	put(to, "", 0);
	for (line = from->s; *line; line = end) {
		end = strchrnul(line, '\n');
		end += *end != '\0';
		n = first_word(line, false, &word);
		if (!names_key(word, n, e->key)) {
			put(to, line, (size_t)(end - line));
			continue;
		}
		note_old(e, line);
		if (e->value && !e->done)	/* lines of networks add up: the new value takes
						 * the place of all */
			put_changed(to, e, line, (size_t)(end - line));
		e->done = true;
	}
	if (e->done || !e->value)
		return;
	to->len = 0;
	at = place_for(from->s, e->key);
	put(to, from->s, at);
	if (at && from->s[at - 1] != '\n')
		put(to, "\n", 1);
	putf(to, "%s %s\n", e->key, e->value);
	put(to, from->s + at, from->len - at);
}

/* ---- the file ---- */

/* Under a name that no pattern of an include means, until it is whole. */
static int write_new(const char *path, const struct text *t, const struct stat *old)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char tmp[PATH_MAX + 32];
	int fd, rc = 0;

	snprintf(tmp, sizeof(tmp), "%.*s.%s.XXXXXX", (int)(name - path), path, name);
	fd = mkostemp(tmp, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, t->s, t->len) != (ssize_t)t->len)
		rc = errno ? -errno : -EIO;
	if (!rc && old && fchown(fd, old->st_uid, old->st_gid) && errno != EPERM)
		rc = -errno;
	if (!rc && fchmod(fd, old ? old->st_mode & 0777 : 0644))
		rc = -errno;
	if (!rc && fsync(fd))
		rc = -errno;
	close(fd);
	if (!rc && rename(tmp, path))
		rc = -errno;
	if (rc)
		unlink(tmp);
	return rc;
}

#define LOCK_NAPS 100		/* of 10 ms: an edit takes one at most */

/* Who may read the directory may keep its lock, for ever: then the edit is made without it. */
static int lock(int fd, const char *dir)
{
	struct timespec nap = { 0, 10000000 };
	int naps = 0;

	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (naps++ == LOCK_NAPS) {
			complain("policy: another process keeps the lock (flock) of %s; edited "
				 "without it", dir);
			return 0;
		}
		nanosleep(&nap, NULL);
	}
	return 0;
}

/* Locks the directory that the file is in. Returns its fd or -errno. */
static int lock_directory(const char *path)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(path, '/');
	int fd, rc;

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = lock(fd, dir);
	if (rc) {
		close(fd);
		return rc;
	}
	return fd;
}

static void tell_change(const char *path, const struct edit *e)
{
	char was[1100] = "was not set";

	if (e->old.s)
		snprintf(was, sizeof(was), "was %s", e->old.s);
	if (e->value)
		say_line(stdout, "%s: %s set to %s (%s); running programs follow within a second",
			 path, e->key, e->value, was);
	else
		say_line(stdout,
			 "%s: %s not set any more (%s); running programs follow within a second",
			 path, e->key, was);
}

/* Changes the file `path`, which `named` is in the policy whose first file is `first`. */
static int change(const char *first, const char *named, const char *path, struct edit *e,
		  bool may_create)
{
	struct text from = { 0 }, to = { 0 };
	char msg[POLICY_ERROR_TEXT];
	struct policy_error err;
	struct policy *p = NULL;
	struct stat st;
	bool exists;
	FILE *f;
	int rc;

	if (!replaceable(path))
		return EXIT_FAILED;
	f = fopen(path, "re");
	exists = f && !fstat(fileno(f), &st);
	if (!f && !(errno == ENOENT && may_create)) {
		complain("policy: %s: %s", path, strerror(errno));
		return EXIT_FAILED;
	}
	if (f && !read_stream(f, &from)) {
		complain("policy: %s cannot be read, or is longer than 1 MiB", path);
		fclose(f);
		free(from.s);
		return EXIT_FAILED;
	}
	if (f)
		fclose(f);
	if (!from.s)
		put(&from, "", 0);
	if (!from.failed)
		apply(&from, e, &to);
	rc = from.failed || to.failed ? -ENOMEM
	     : memchr(from.s, '\0', from.len)
		     ? -EINVAL
		     : policy_parse_instead(first, named, to.s, to.len, &p, &err);
	if (rc == -EINVAL && p == NULL && !memchr(from.s, '\0', from.len)) {
		complain("policy: left as it was, since it would be refused: %s",
			 policy_error_text(&err, msg, sizeof(msg)));
	} else if (rc) {
		complain("policy: %s: %s", path, strerror(-rc));
	} else if (!e->value && !e->done) {
		say_line(stdout, "%s: %s is not set; nothing to do", path, e->key);
	} else {
		rc = write_new(path, &to, exists ? &st : NULL);
		if (rc)
			complain("policy: cannot write %s: %s", path, strerror(-rc));
		else
			tell_change(path, e);
	}
	policy_free(p);
	free(from.s);
	free(to.s);
	return rc ? EXIT_FAILED : EXIT_OK;
}

/* A symbolic link is followed: the file that it names is replaced, not the link. False after a
 * complaint. */
static bool real_path(const char *path, char real[PATH_MAX])
{
	if (realpath(path, real))
		return true;
	if (errno != ENOENT || strlen(path) >= PATH_MAX) {
		complain("policy: %s: %s", path, strerror(errno));
		return false;
	}
	strcpy(real, path);
	return true;
}

/* The file in which the key is set: the first, or one that it includes. NULL after a complaint. */
static const char *where_set(const struct policy *p, const char *first, const char *key)
{
	uint32_t at = 0;
	bool many = false;
	int i;

	for (i = 0; i < CONF_KEYS; i++)
		if (!strcmp(key, conf_rows[i].name))
			at = p->set_at[i];
	if (!strcmp(key, "mode"))
		at = p->mode_at;
	else if (!strcmp(key, "key_file"))
		at = p->key_at;
	else if (!strcmp(key, "discovery_dir"))
		at = p->dir_at;
	else if (!strcmp(key, "cross_ns_dir"))
		at = p->across_at;
	else if (!strcmp(key, NETWORKS))
		at = p->nets_at, many = p->nets_apart;
	else if (!strcmp(key, VIA))
		at = p->via_at, many = p->via_apart;
	else if (!strcmp(key, USERS))
		at = p->users_at, many = p->users_apart;
	if (!many)
		return policy_at_file(at) ? policy_at_path(p, at) : first;
	complain("policy: %s stands in several files that %s includes; change it with an editor",
		 key, first);
	return NULL;
}

/* The name of the file to change, in buf. False after a complaint. */
static bool find_file(const char *first, const char *key, char buf[PATH_MAX])
{
	struct policy_error err;
	struct policy *p = NULL;
	const char *named = first;

	if (!policy_load(first, &p, &err))	/* else: perhaps this is what mends it */
		named = where_set(p, first, key);
	if (named)
		snprintf(buf, PATH_MAX, "%s", named);
	policy_free(p);
	return named != NULL;
}

/* One that no program believes is not changed either: whose it is could be waiting for that. A new
 * file may be made. False after a complaint. */
static bool believed(const char *path)
{
	struct trust t;

	if (trust_walk(path, TRUST_POLICY, &t) != TRUST_REFUSED)
		return true;
	complain("policy: %s: %s", path, t.why);
	return false;
}

/* Only the directory of the file that is changed is locked; the key may be found in another one
 * when that is had. */
static int locked_change(const char *first, struct edit *e)
{
	char named[PATH_MAX], again[PATH_MAX], real[PATH_MAX];
	int lock = -1, rc = EXIT_FAILED;

	if (!find_file(first, e->key, again))
		return EXIT_FAILED;
	do {
		if (lock >= 0)
			close(lock);
		strcpy(named, again);
		if (!believed(named) || !real_path(named, real))
			return EXIT_FAILED;
		lock = lock_directory(real);
		if (lock < 0) {
			complain("policy: the directory of %s: %s", real, strerror(-lock));
			return EXIT_FAILED;
		}
	} while (find_file(first, e->key, again) && strcmp(named, again));
	if (!strcmp(named, again))
		rc = change(first, named, real, e, e->value != NULL);
	close(lock);
	return rc;
}

/* ---- set, unset ---- */


/* The words behind the key, with a blank between each two. False after a complaint. */
static bool join_value(struct edit *e, const struct args *words, char *buf, size_t len)
{
	bool several = has_several(e->key);
	size_t at = 0;
	int i;

	for (i = 0; i < words->argc; i++) {
		const char *w = words->argv[i];

		if (!*w || strpbrk(w, several ? "\t\r\n#" : " \t\r\n#")) {
			complain(several ? "policy set: write the networks as words: 10.0.0.0/8 "
					   "[2001:db8::/32]"
					 : "policy set: the value is one word");
			return false;
		}
		at += (size_t)snprintf(buf + at, len - at, "%s%s", i ? " " : "", w);
		if (at >= len) {
			complain("policy set: the value is too long");
			return false;
		}
	}
	e->value = buf;
	return true;
}

static bool known_key(const char *key)
{
	static const char *const others[] = { "mode", "key_file", NETWORKS, VIA, "discovery_dir",
					      "cross_ns_dir", USERS };
	enum { KEYS = CONF_KEYS + 7 };
	const char *names[KEYS], *guess;
	int i;

	for (i = 0; i < KEYS; i++)
		names[i] = i < CONF_KEYS ? conf_rows[i].name : others[i - CONF_KEYS];
	for (i = 0; i < KEYS; i++)
		if (!strcmp(key, names[i]))
			return true;
	if (!strcmp(key, "use") || !strcmp(key, "program") || !strcmp(key, "include")) {
		complain("policy: rules, sections and includes are written with an editor; their "
			 "order counts");
		return false;
	}
	guess = suggest_word(key, strlen(key), names, KEYS);
	if (guess)
		complain("policy: %s is not a key; did you mean %s?", key, guess);
	else
		complain("policy: %s is not a key; rdmastat policy keys lists them", key);
	return false;
}

/* The new name of a key, or of the word behind one; says so. */
static const char *renewed(const char *of, const char *word)
{
	const struct old_name *old = old_name(of, word, strlen(word));

	if (!old)
		return word;
	complain("policy: %s is called %s now", word, old->now);
	return old->now;
}

static int set_or_unset(int argc, char **argv, bool set)
{
	static const struct opt opts[] =
		{ { 'f', "file", "FILE", "this policy file instead of the one in use" } };
	struct args a = { argc - 1, argv + 1 };
	const char *path = NULL, *v = NULL;
	struct edit e = { 0 };
	char value[1000];
	int o;

	while ((o = opt_next(&a, opts, 1, &v)) >= 0)
		path = v;
	if (o == -2)
		return EXIT_USAGE;
	if (a.argc < 1 + set || (a.argc > 1 + set && !(set && has_several(a.argv[0])))) {
		complain(set ? "policy set: write rdmastat policy set [-f FILE] KEY VALUE"
			     : "policy unset: write rdmastat policy unset [-f FILE] KEY");
		return EXIT_USAGE;
	}
	e.key = renewed("key", a.argv[0]);
	a.argc--;
	a.argv++;
	if (!known_key(e.key))
		return EXIT_USAGE;
	if (set && !join_value(&e, &a, value, sizeof(value)))
		return EXIT_USAGE;
	if (set)
		e.value = renewed(e.key, e.value);
	o = locked_change(path ? path : policy_path(false), &e);
	free(e.old.s);
	return o;
}

int policy_set(int argc, char **argv)
{
	return set_or_unset(argc, argv, true);
}

int policy_unset(int argc, char **argv)
{
	return set_or_unset(argc, argv, false);
}
