/*
 * ring_segments.h - a part of test_ring.c: who is told, and segments that are none.
 */
START_TEST(notify)
{
	struct segment_side *side = &a1.side[1];
	struct segment_slot_side *ss = &a1.slot[5].side[1];

	ck_assert_uint_eq(segment_notify(&a0, 5), 0);
	atomic_store(&side->armed, 0xf0);
	ck_assert_uint_eq(segment_notify(&a0, 5), 0);	/* asleep, but they don't care */
	atomic_store(&ss->bells, 0x30 | 1);
	ck_assert_uint_eq(segment_notify(&a0, 4), 0);	/* another slot */
	ck_assert_uint_eq(atomic_load(&side->armed), 0xf0);
	ck_assert_uint_eq(segment_notify(&a0, 5), 0x30);
	ck_assert_uint_eq(atomic_load(&side->armed), 0xc0);
	ck_assert_uint_eq(segment_notify(&a0, 5), 0);	/* rung once */
	ck_assert_uint_eq(atomic_load(&side->summary), 0);
	atomic_store(&ss->epolls, 1);
	segment_notify(&a0, 5);
	ck_assert_uint_eq(atomic_load(&side->dirty[0]), 1u << 5);
	ck_assert_uint_eq(atomic_load(&side->summary), 1);
	ck_assert_uint_eq(atomic_load(&a0.side[0].summary), 0);
}
END_TEST

/* ---- segments that are none ---- */

static struct segment_header good;

static int craft(const void *head, size_t len, uint64_t size, int seals)
{
	int fd = memfd_create("x", MFD_ALLOW_SEALING | MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	ck_assert_int_eq(pwrite(fd, head, len, 0), (ssize_t)len);
	if (seals)
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int try(const struct segment_header *h, uint64_t size, int seals)
{
	int fd = craft(h, sizeof *h, size, seals), r;
	struct segment a;

	r = segment_attach(&a, fd);
	if (!r)
		segment_unmap(&a);
	else
		ck_assert_ptr_null(a.base);
	close(fd);
	return r;
}

#define ALL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

START_TEST(not_an_segment)
{
	struct segment_header h;
	struct segment a;
	uint64_t total = a0.total;
	int fd, p[2];

	good = *(struct segment_header *)a0.base;
	ck_assert_int_eq(try(&good, total, ALL_SEALS), 0);	/* the craft itself is right */
	ck_assert_int_eq(try(&good, total, 0), -EPROTO);
	ck_assert_int_eq(try(&good, total, F_SEAL_GROW | F_SEAL_SEAL), -EPROTO);
	ck_assert_int_eq(try(&good, total, F_SEAL_SHRINK | F_SEAL_SEAL), -EPROTO);
	ck_assert_int_eq(try(&good, total, F_SEAL_SHRINK | F_SEAL_GROW), -EPROTO);
	ck_assert_int_lt(try(&good, total, ALL_SEALS | F_SEAL_WRITE), 0);
	ck_assert_int_eq(try(&good, total - 1, ALL_SEALS), -EPROTO);
	ck_assert_int_eq(try(&good, total + 4096, ALL_SEALS), -EPROTO);
	ck_assert_int_eq(try(&good, 4096, ALL_SEALS), -EPROTO);
#define LIE(field, value) do { h = good; h.field = value; \
	ck_assert_int_eq(try(&h, total, ALL_SEALS), -EPROTO); } while (0)
	LIE(magic, good.magic ^ 1);
	LIE(version, good.version + 1);
	LIE(slots, 0);
	LIE(slots, 1);
	LIE(slots, good.slots + 1);
	LIE(slots, SEGMENT_MAX_SLOTS + 1);
	LIE(slots, UINT32_MAX);
	LIE(ring_size, 0);
	LIE(ring_size, 2048);
	LIE(ring_size, good.ring_size + 1);
	LIE(ring_size, 2 * good.ring_size);
	LIE(ring_size, 1ull << 63);
	LIE(large_size, 0);
	LIE(large_size, SIZE);
	LIE(large_size, LARGE / 2);
	LIE(large_size, LARGE + 1);
	LIE(large_size, 1ull << 63);
	LIE(total_size, total + 4096);
	LIE(total_size, 0);
	/* Everything agrees, but there is no header in full, or the thing is no memfd at all. */
	fd = craft(&good, sizeof good, 16, ALL_SEALS);
	ck_assert_int_eq(segment_attach(&a, fd), -EPROTO);
	close(fd);
	fd = open("/dev/zero", O_RDWR);
	ck_assert_int_lt(segment_attach(&a, fd), 0);
	close(fd);
	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_lt(segment_attach(&a, p[0]), 0);
	close(p[0]);
	close(p[1]);
	ck_assert_int_lt(segment_attach(&a, -1), 0);
	ck_assert_int_eq(segment_create(&a, 1, SIZE, 0, &fd), -EINVAL);
	ck_assert_int_eq(segment_create(&a, SEGMENT_MAX_SLOTS + 1, SIZE, 0, &fd), -EINVAL);
	ck_assert_int_eq(segment_create(&a, 2, SIZE + 1, 0, &fd), -EINVAL);
	ck_assert_int_eq(segment_create(&a, 2, SIZE, SIZE, &fd), -EINVAL);
	ck_assert_int_eq(segment_create(&a, SEGMENT_MAX_SLOTS, SIZE, 1 << 24, &fd), -EINVAL);
}
END_TEST

/* The creator cannot pull the memory away under the other end. */
START_TEST(sealed)
{
	ck_assert_int_lt(ftruncate(memfd, 0), 0);
	ck_assert_int_lt(ftruncate(memfd, (off_t)a0.total * 2), 0);
	ck_assert_int_lt(fcntl(memfd, F_ADD_SEALS, F_SEAL_WRITE), 0);
}
END_TEST

/*
 * Memory of huge pages: its seals, size and header may all be right, but pages may be missing
 * when they are touched, which is SIGBUS. Needs a huge page for the header, if the machine gives
 * one.
 */
START_TEST(huge_pages)
{
	int fd = memfd_create("x", MFD_ALLOW_SEALING | MFD_CLOEXEC | MFD_HUGETLB), old = 0;
	FILE *f = fopen("/proc/sys/vm/nr_hugepages", "r+");
	struct segment_header h = { SEGMENT_MAGIC, SEGMENT_VERSION, SEGMENT_MAX_SLOTS, 65536, 0,
				    0 };
	struct segment a;
	void *p = MAP_FAILED;
	int r = -1;

	/* a geometry whose size happens to be whole huge pages */
	for (;; h.slots--) {
		ck_assert_int_eq(segment_create(&a, h.slots, h.ring_size, 0, &memfd), 0);
		if (a.total % (2 << 20) == 0)
			break;
		segment_unmap(&a);
		close(memfd);
	}
	if (f && fscanf(f, "%d", &old) == 1 && !old) {
		rewind(f);
		fprintf(f, "1\n");
		fflush(f);
	}
	h.total_size = a.total;
	segment_unmap(&a);
	if (fd >= 0 && !ftruncate(fd, (off_t)h.total_size)) {
		p = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
		if (p != MAP_FAILED) {
			*(struct segment_header *)p = h;
			fcntl(fd, F_ADD_SEALS, ALL_SEALS);
			r = segment_attach(&a, fd);
		}
	}
	if (f && !old) {
		rewind(f);
		fprintf(f, "0\n");
		fclose(f);
	}
	close(fd);
	close(memfd);
	ck_assert_int_lt(r, 0);
	if (p == MAP_FAILED)
		fprintf(stderr, "no huge page here: not tried\n");
}
END_TEST
