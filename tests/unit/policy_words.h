/*
 * policy_words.h - a part of test_policy.c: words, and the logger.
 */
START_TEST(test_words)
{
	char b[64];
	uint64_t v;
	bool over;

	ck_assert_uint_eq(fmt_string(b, sizeof(b), "%s|%d|%u|%lu|%lx|%c|%%|%zu", "a", -5, 7u, ~0ul,
				     0xabcul, 'x', (size_t)9),
			  37);
	ck_assert_str_eq(b, "a|-5|7|18446744073709551615|abc|x|%|9");
	fmt_string(b, sizeof(b), "%ld %p", (long)INT64_MIN, (void *)0x10);
	ck_assert_str_eq(b, "-9223372036854775808 0x10");
	ck_assert_uint_eq(fmt_string(b, 4, "abcdef"), 3);
	ck_assert_str_eq(b, "abc");
	ck_assert_uint_eq(parse_digits("18446744073709551615", 20, &v, &over), 20);
	ck_assert(v == UINT64_MAX && !over);
	parse_digits("18446744073709551616", 20, &v, &over);
	ck_assert(over);
	/* the product overflows, the sum does not */
	parse_digits("30000000000000000000", 20, &v, &over);
	ck_assert(over);
	ck_assert_uint_eq(parse_digits("12x", 3, &v, &over), 2);
	ck_assert_uint_eq(v, 12);
	ck_assert(glob_match("*", 1, ""));
	ck_assert(glob_match("a*b*c", 5, "aXbYbZc"));
	ck_assert(!glob_match("a*b*c", 5, "aXbYbZ"));
	ck_assert(!glob_match("?", 1, ""));
	ck_assert(!glob_match("a", 1, "ab"));
	ck_assert(!glob_match("", 0, "a"));
	/* would take for ever with a matcher that tries every star */
	ck_assert(!glob_match("*a*a*a*a*a*a*a*a*a*a*a*a*b", 26,
			      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
			      "aaaaaaaaaaaaaaaaaaa"));
	ck_assert_str_eq(quote_word("a\033b", 3, b, sizeof(b)), "'a\\x1bb'");
}
END_TEST

/* What becomes of s, of len bytes. */
static const char *printable(const char *s, size_t len, int keep)
{
	static char b[64];

	memset(b, 'X', sizeof(b));
	memcpy(b, s, len);
	make_printable(b, len, '?', keep);
	ck_assert_int_eq(b[len], 'X');
	b[len] = '\0';
	ck_assert_uint_eq(strlen(b), len);
	return b;
}

START_TEST(test_printable)
{
#define KEPT(s, is) ck_assert_str_eq(printable(s, sizeof(s) - 1, KEEP_UTF8), is)
	KEPT("", "");
	KEPT("plain ~ text", "plain ~ text");
	KEPT("a\0b", "a?b");
	KEPT("\033[31m\n\r\t\x7f", "?[31m????");
	KEPT("J\xc3\xbcrgen \xe6\x97\xa5", "J\xc3\xbcrgen \xe6\x97\xa5");
	KEPT("\xf0\x9f\x90\x87", "\xf0\x9f\x90\x87");
	KEPT("\x9b" "1m", "?1m");			/* C1 as a byte */
	KEPT("\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0", "??????\xc2\xa0");	/* and in UTF-8 */
	KEPT("\xc0\x9b\xe0\x82\x9b\xc1\xbf", "???????");	/* too long for what they are */
	/* a surrogate, beyond Unicode, no UTF-8 */
	KEPT("\xed\xa0\x80\xf4\x90\x80\x80\xff\xfe\xf8\x88\x80\x80\x80", "??????????????");
	KEPT("\xc3", "?");				/* cut off, at the end and by another */
	KEPT("\xe6\x97", "??");
	KEPT("\xe6\x97z", "??z");
	KEPT("\xc3\033", "??");
	KEPT("\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8\xef\xbb\xbf", "????????????");
	ck_assert_str_eq(printable("a\xc3\xbc\033", 4, ASCII_ONLY), "a???");
}
END_TEST

/* ---- the logger ---- */

/* What a child says to fd 2 when `run` is called there. */
static size_t child_stderr(void (*run)(void), char *buf, size_t len)
{
	size_t used = 0;
	ssize_t n;
	int fd[2];
	pid_t pid;

	ck_assert_int_eq(pipe(fd), 0);
	pid = fork();
	if (!pid) {
		dup2(fd[1], 2);
		close(fd[0]);
		close(fd[1]);
		run();
		_exit(0);
	}
	close(fd[1]);
	while ((n = read(fd[0], buf + used, len - 1 - used)) > 0)
		used += (size_t)n;
	buf[used] = '\0';
	close(fd[0]);
	waitpid(pid, NULL, 0);
	return used;
}

static void log_levels(void)
{
	log_init(LOG_LEVEL_WARN);
	errno = 5;
	log_line(LOG_LEVEL_ERROR, "one %d", 1);
	log_line(LOG_LEVEL_WARN, "errno %d", errno);
	log_line(LOG_LEVEL_PATH, "hidden");
}

static void log_flood(void)
{
	int i;

	log_init(LOG_LEVEL_WARN);
	for (i = 0; i < 5000; i++)
		log_line(LOG_LEVEL_WARN, "x");
}

static void log_replaced(void)
{
	int fd;

	log_init(LOG_LEVEL_WARN);
	fd = open("/dev/null", O_WRONLY);
	ck_assert(fd >= 0);
	/* fd 2 is now another pipe's end: as if the program had put its own file there */
	int p[2];
	ck_assert_int_eq(pipe(p), 0);
	dup2(p[1], 2);
	fcntl(p[0], F_SETFL, O_NONBLOCK);
	log_line(LOG_LEVEL_WARN, "leaked");
	char c;
	_exit(read(p[0], &c, 1) > 0 ? 1 : 0);
}

START_TEST(test_log)
{
	static char buf[1 << 16];
	char pid_prefix[] = "rdmashim[";
	size_t lines = 0, i;
	int st;
	pid_t pid;

	child_stderr(log_levels, buf, sizeof(buf));
	ck_assert_int_eq(strncmp(buf, pid_prefix, strlen(pid_prefix)), 0);
	ck_assert_ptr_nonnull(strstr(buf, "]: one 1\n"));
	ck_assert_ptr_nonnull(strstr(buf, "]: errno 5\n"));
	ck_assert_ptr_null(strstr(buf, "hidden"));

	child_stderr(log_flood, buf, sizeof(buf));
	for (i = 0; buf[i]; i++)
		lines += buf[i] == '\n';
	ck_assert_uint_ge(lines, LOG_PER_SECOND);
	ck_assert_uint_le(lines, 3 * LOG_PER_SECOND);

	pid = fork();
	if (!pid)
		log_replaced();
	waitpid(pid, &st, 0);
	ck_assert_msg(WIFEXITED(st) && WEXITSTATUS(st) == 0,
		      "a log line went to a descriptor that is not the old stderr");
}
END_TEST

static char log_file[64];

static void log_to_file(void)
{
	log_init(LOG_LEVEL_SILENT);
	log_set_level(LOG_LEVEL_ERROR);		/* as the policy would: the environment's counts */
	log_line(LOG_LEVEL_PATH, "seen %d", 7);
	log_line(LOG_LEVEL_DEBUG, "hidden");
}

static void all_levels(void)
{
	log_init(LOG_LEVEL_DEBUG);
	for (int i = LOG_LEVEL_ERROR; i <= LOG_LEVEL_DEBUG; i++)
		log_line(i, "level %d", i);
}

/* The log file's text behind what stood there; an empty file is left. */
static const char *logged(void (*run)(void), const char *env, char *errors, size_t len)
{
	static char buf[4096];
	FILE *f;
	size_t n;

	ck_assert_int_eq(truncate(log_file, 0), 0);
	setenv("RDMASHIM_LOG", env, 1);
	child_stderr(run, errors, len);
	unsetenv("RDMASHIM_LOG");
	f = fopen(log_file, "r");
	ck_assert_ptr_nonnull(f);
	n = fread(buf, 1, sizeof(buf) - 1, f);
	buf[n] = '\0';
	fclose(f);
	return buf;
}

START_TEST(test_log_environment)
{
	char env[96], err[1024], again[128], level[16];
	struct tm tm = { 0 };
	const char *text;
	unsigned us;
	int pid, n, fd;
	time_t t;

	strcpy(log_file, "/tmp/rdmashim-log-XXXXXX");
	fd = mkstemp(log_file);
	ck_assert_int_ge(fd, 0);
	snprintf(env, sizeof(env), "path:%s", log_file);
	text = logged(log_to_file, env, err, sizeof(err));
	ck_assert_str_eq(err, "");
	ck_assert_int_eq(sscanf(text, "%d-%d-%dT%d:%d:%d.%6uZ %15s rdmashim[%d]: seen 7%n",
				&tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min,
				&tm.tm_sec, &us, level, &pid, &n),
			 9);
	ck_assert_str_eq(text + n, "\n");
	ck_assert_str_eq(level, "path");
	tm.tm_year -= 1900;
	tm.tm_mon--;
	t = timegm(&tm);
	ck_assert_msg(t > time(NULL) - 60 && t <= time(NULL), "logged at %ld, now is %ld", (long)t,
		      (long)time(NULL));
	snprintf(env, sizeof(env), "4:%s", log_file);
	text = logged(all_levels, env, err, sizeof(err));
	for (int i = LOG_LEVEL_ERROR; i <= LOG_LEVEL_DEBUG; i++) {
		static const char *const names[] = { "", "error", "warn", "path", "debug" };

		snprintf(again, sizeof(again), " %s rdmashim[", names[i]);
		ck_assert_msg(strstr(text, again), "no line with%s in %s", again, text);
	}
	/* to stderr; the policy's level counts for nothing */
	ck_assert_str_eq(logged(log_to_file, "3", err, sizeof(err)), "");
	ck_assert_ptr_nonnull(strstr(err, "]: seen 7\n"));
	ck_assert_str_eq(logged(all_levels, "silent", err, sizeof(err)), "");
	ck_assert_str_eq(err, "");
	/* what makes no sense is told, and the level stays the policy's */
	logged(all_levels, "verbose:/x", err, sizeof(err));
	ck_assert_ptr_nonnull(strstr(err, "RDMASHIM_LOG is not LEVEL"));
	ck_assert_ptr_nonnull(strstr(err, "]: level 4\n"));
	/* errors that the file cannot take, and nothing else */
	logged(all_levels, "debug:/nowhere/at/all", err, sizeof(err));
	ck_assert_ptr_nonnull(strstr(err, "]: level 1\n"));
	ck_assert_ptr_null(strstr(err, "level 2"));
	/* a full file gets no more */
	snprintf(env, sizeof(env), "4:%s", log_file);
	setenv("RDMASHIM_LOG", env, 1);
	ck_assert_int_eq(ftruncate(fd, LOG_FILE_MAX), 0);
	child_stderr(all_levels, err, sizeof(err));
	ck_assert_int_eq(lseek(fd, 0, SEEK_END), LOG_FILE_MAX);
	unsetenv("RDMASHIM_LOG");
	close(fd);
	unlink(log_file);
}
END_TEST
