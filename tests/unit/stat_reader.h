/*
 * stat_reader.h - a part of test_stat.c: counter files that are read.
 */
static struct stat_header *map_own(void)
{
	int fd = open(file, O_RDWR);
	void *m = mmap(NULL, sizeof(struct stat_header) + 8 * sizeof(struct stat_row),
		       PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	ck_assert(m != MAP_FAILED);
	close(fd);
	return m;
}

static int read_rc(void)
{
	struct stat_proc p;
	int rc = statfile_read(dirfd_, own_name(), geteuid(), &p);

	if (!rc)
		stat_proc_clear(&p);
	return rc;
}

START_TEST(test_liars)
{
	struct stat_header *h, good;
	struct stat_row *r, good_row;
	struct stat_proc p;

	ck_assert_int_eq(stat_open("p", ""), 0);
	live_row(1);
	h = map_own();
	r = (struct stat_row *)(h + 1);
	memcpy(&good, h, sizeof(good));
	memcpy(&good_row, r, sizeof(good_row));
#define BREAK(stmt, want) do { \
		stmt; \
		ck_assert_msg(read_rc() == (want), #stmt ": %d", read_rc()); \
		memcpy(h, &good, sizeof(good)); \
		ck_assert_int_eq(read_rc(), 0); \
	} while (0)
	BREAK(h->magic ^= 1, -EBADMSG);
	BREAK(h->version++, -EPROTO);
	BREAK(h->header_size--, -EPROTO);
	BREAK(h->row_size++, -EPROTO);
	BREAK(h->rows++, -EBADMSG);
	BREAK(h->rows = UINT32_MAX, -EBADMSG);
	BREAK(h->rows_used = STAT_ROWS + 1, -EBADMSG);
	BREAK(h->rows_used = UINT32_MAX, -EBADMSG);
	BREAK(h->pid++, -EBADMSG);
	BREAK(h->pid = 0, -EBADMSG);
	BREAK(h->bytes_tx[0] = UINT64_MAX, -EBADMSG);
	BREAK(h->bytes_rx[2] = UINT64_MAX / 2, -EBADMSG);

	memset(h->program, 'A', sizeof(h->program));	/* no NUL */
	memset(h->policy_file, '\n', sizeof(h->policy_file));
	h->reasons[REASON_POLICY] = UINT64_MAX;
	h->uid = 4711;
	ck_assert_uint_eq(read_self(&p), 1);
	ck_assert_uint_eq(strlen(p.program), sizeof(p.program) - 1);
	ck_assert_int_eq(p.policy_file[0], '?');
	ck_assert_uint_eq(p.reasons[REASON_POLICY], 0);
	ck_assert_uint_eq(p.uid, geteuid());
	stat_proc_clear(&p);
	memcpy(h, &good, sizeof(good));

	/* a row that lies is left out, the others stay */
#define BREAK_ROW(stmt) do { \
		stmt; \
		ck_assert_msg(read_self(&p) == 0, #stmt); \
		stat_proc_clear(&p); \
		memcpy(r, &good_row, sizeof(good_row)); \
		ck_assert_uint_eq(read_self(&p), 1); \
		stat_proc_clear(&p); \
	} while (0)
	BREAK_ROW(r->state = 77);
	BREAK_ROW(r->family = 1);
	BREAK_ROW(r->role = 3);
	BREAK_ROW(r->reason = REASON_COUNT);
	BREAK_ROW(r->tx_path = PATH_KINDS);
	BREAK_ROW(r->rx_path = 255);
	BREAK_ROW(r->tx_bytes[1] = UINT64_MAX);
	BREAK_ROW(r->rx_bytes[2] = UINT64_MAX);
}
END_TEST

START_TEST(test_truncated)
{
	struct stat st;
	char begin[16384];		/* the rest is zero */
	off_t len;
	int fd;

	ck_assert_int_eq(stat_open("p", ""), 0);
	live_row(1);
	munmap(stat_self(), FILE_SIZE);	/* or we get SIGBUS */
	fd = open(file, O_RDWR);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, FILE_SIZE);
	ck_assert_int_eq(pread(fd, begin, sizeof(begin), 0), sizeof(begin));
	for (len = 0; len < st.st_size; len += len < 2000 ? 1 : 50021) {
		ck_assert_int_eq(ftruncate(fd, len), 0);
		ck_assert_msg(read_rc() == -EBADMSG, "length %ld: %d", (long)len, read_rc());
		ck_assert_int_eq(ftruncate(fd, st.st_size), 0);
		ck_assert_int_eq(pwrite(fd, begin, sizeof(begin), 0), sizeof(begin));
	}
	ck_assert_int_eq(read_rc(), 0);
	close(fd);
}
END_TEST

/* Random bytes over header and first rows: any answer but a crash, and what is taken is in
 * range. */
START_TEST(test_garbled)
{
	struct stat_header *h, *good;
	size_t len = sizeof(*h) + 8 * sizeof(struct stat_row), i, k;
	struct stat_proc p;
	unsigned seed = 1;
	int round, taken = 0;

	ck_assert_int_eq(stat_open("p", ""), 0);
	for (i = 0; i < 8; i++)
		live_row((uint32_t)i + 1);
	h = map_own();
	good = malloc(len);
	memcpy(good, h, len);
	for (round = 0; round < 5000; round++) {
		memcpy(h, good, len);
		for (i = rand_r(&seed) % 64; i; i--)
			((uint8_t *)
				 h)[(size_t)rand_r(&seed) % (round % 2 ? len - sizeof(*h) : len) +
				    (round % 2 ? sizeof(*h) : 0)] = (uint8_t)rand_r(&seed);
		if (statfile_read(dirfd_, own_name(), geteuid(), &p))
			continue;
		taken++;
		for (k = 0; k < p.nconns; k++)
			ck_assert(p.conns[k].tx_path < PATH_KINDS &&
				  p.conns[k].rx_path < PATH_KINDS &&
				  p.conns[k].reason < REASON_COUNT && p.conns[k].role <= ROLE_ANY);
		ck_assert(memchr(p.program, 0, sizeof(p.program)) &&
			  memchr(p.policy_file, 0, sizeof(p.policy_file)));
		stat_proc_clear(&p);
	}
	ck_assert_int_gt(taken, 1000);
	free(good);
}
END_TEST

/*
 * The reader's pread is this one. Armed, the given reading of the rows is cut in two in the
 * middle of row 0, and the row is given to another connection in between: what preemption does
 * once in a million readings.
 */
static int tear_in = -1;
static struct stat_row *tear_row;

#define LINKS_AT ((off_t)(FILE_SIZE - sizeof(struct stat_links)))
static struct stat_link *tear_link;
static bool tear_back;		/* the later half is read first */

static struct stat_link *live_link(unsigned n, uint32_t qpn)
{
	struct stat_link *l = stat_link_begin(n);

	l->qpn = qpn;
	l->peer_qpn = qpn + 1;
	l->phase = STAT_LINK_UP;
	l->device[0] = 'd';
	l->device[STAT_DEVICE - 1] = (char)qpn;		/* no end: only what fits is there */
	stat_link_publish(l);
	return l;
}

ssize_t pread(int fd, void *buf, size_t len, off_t off)
{
	long a = 0, b = 0;

	if (tear_link && off == LINKS_AT + (off_t)offsetof(struct stat_links, link) &&
	    tear_in-- == 0) {
		const long cut = offsetof(struct stat_link, peer_qpn);

		for (int half = 0; half < 2; half++) {
			if (half) {
				stat_link_free(tear_link);
				ck_assert_ptr_eq(live_link(0, 500), tear_link);
			}
			if (half != tear_back)
				b = syscall(SYS_pread64, fd, (char *)buf + cut, len - (size_t)cut,
					    off + cut);
			else
				a = syscall(SYS_pread64, fd, buf, cut, off);
		}
		return a + b;
	}
	if (off != sizeof(struct stat_header) || tear_in-- != 0)
		return syscall(SYS_pread64, fd, buf, len, off);
	a = syscall(SYS_pread64, fd, buf, sizeof(struct stat_row) / 2, off);
	stat_row_free(tear_row);
	ck_assert_ptr_eq(live_row(2), tear_row);
	b = syscall(SYS_pread64, fd, (char *)buf + a, len - (size_t)a, off + a);
	return a + b;
}

START_TEST(test_torn_row)
{
	struct stat_proc p;

	ck_assert_int_eq(stat_open("p", ""), 0);
	tear_row = live_row(1);
	live_row(3);
	tear_in = _i;
	read_self(&p);
	ck_assert_int_lt(tear_in, 0);
	ck_assert_uint_ge(p.nconns, 1);
	ck_assert_uint_eq(p.conns[p.nconns - 1].fd, 3);
	if (p.nconns == 2)
		ck_assert_uint_eq(p.conns[0].fd, p.conns[0].rx_bytes[PATH_RDMA]);
	stat_proc_clear(&p);
}
END_TEST

/* proc_pid_stat(5), with a name that has all that could be taken for something else. */
START_TEST(test_proc_stat)
{
	static const char text[] =
		"7 (a) Z (b 1) R 1 2 3 4 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 12345 99\n";
	struct proc_stat st;

	ck_assert(proc_stat_parse(text, sizeof text - 1, &st));
	ck_assert_int_eq(st.state, 'R');
	ck_assert_uint_eq(st.flags, 4194560);
	ck_assert_uint_eq(st.start, 12345);
	for (size_t n = 0; n < (size_t)(strstr(text, "12345") - text); n++)
		ck_assert(!proc_stat_parse(text, n, &st));
	ck_assert(!proc_stat_parse("no brackets", 11, &st));
}
END_TEST

START_TEST(test_wrong_files)
{
	struct stat_proc p;
	char path[128];

	ck_assert_int_eq(stat_open("p", ""), 0);
	ck_assert_int_eq(statfile_read(dirfd_, "1", geteuid(), &p), -ENOENT);
	ck_assert_int_eq(statfile_read(dirfd_, own_name(), geteuid() + 1, &p), -EPERM);
	ck_assert_int_eq(chmod(file, 0644), 0);
	ck_assert_int_eq(read_rc(), -EPERM);
	ck_assert_int_eq(chmod(file, 0600), 0);
	snprintf(path, sizeof(path), "%s/2", dir);
	ck_assert_int_eq(link(file, path), 0);
	/* not its own name */
	ck_assert_int_eq(statfile_read(dirfd_, "2", geteuid(), &p), -EBADMSG);
	unlink(path);
	ck_assert_int_eq(symlink(file, path), 0);
	ck_assert_int_eq(statfile_read(dirfd_, "2", geteuid(), &p), -EBADMSG);
	unlink(path);
	ck_assert_int_eq(rename(file, path), 0);
	ck_assert_int_eq(symlink(path, file), 0);	/* all is right but that it is a link */
	ck_assert_int_eq(read_rc(), -EBADMSG);
	unlink(path);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	/* and does not wait */
	ck_assert_int_eq(statfile_read(dirfd_, "2", geteuid(), &p), -EBADMSG);
	unlink(path);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(statfile_read(dirfd_, "2", geteuid(), &p), -EBADMSG);
}
END_TEST
