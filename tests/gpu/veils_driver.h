/*
 * veils_driver.h - a part of veils.c: what the driver is asked to do with the buffer.
 */
static int as_device_memory(void)
{
	int ok = 1;
	char *p = fresh(15);

	CK(d.cuMemcpyDtoD(dev2, (uintptr_t)p, N));
	return ok & on_device(dev2, N, 15);
}

static int two_dimensions(void)
{
	int ok = 1;
	char *p = fresh(16);
	struct standin_2d c = { .src_type = 1, .src_host = p + 1000, .src_pitch = 4096,
				.dst_type = 2, .dst_device = dev2, .dst_pitch = 1000,
		.width = 1000, .height = 100 };

	CK(d.cuMemcpy2D(&c));
	return ok & on_device(dev2, 100000, 16);
}

static int into_an_array(void)
{
	extern int cuMemcpyHtoA_v2(void *, size_t, const void *, size_t);
	int ok = 1;
	char *p = fresh(17);

	CK(cuMemcpyHtoA_v2((void *)(uintptr_t)dev2, 0, p, N));
	return ok & on_device(dev2, N, 17);
}

static void copy_kernel(void **params) { memcpy(params[0], params[1], 100000); }

static int kernel(void)
{
	int ok = 1;
	char *p = fresh(18);
	void *params[] = { (void *)(uintptr_t)dev2, standin_dma(p + 200000) };

	CK(d.cuLaunchKernel((void *)copy_kernel, 1, 1, 1, 1, 1, 1, 0, b, params, NULL));
	CK(d.cuStreamSynchronize(b));
	return ok & on_device(dev2, 100000, 18);
}

static int graph(void)
{
	int ok = 1;
	char *p = fresh(19);
	CUstream c;
	void *g, *x;

	CK(d.cuStreamCreate(&c, 1));
	CK(d.cuStreamBeginCapture(c, 2));
	CK(d.cuMemcpyHtoDAsync(dev2, p, N, c));
	CK(d.cuStreamEndCapture(c, &g));
	CK(d.cuGraphInstantiateWithFlags(&x, g, 0));
	put_off(p, 20);
	CK(d.cuGraphLaunch(x, c));
	CK(d.cuStreamSynchronize(c));
	ok &= on_device(dev2, N, 20);
	CK(d.cuStreamDestroy(c));
	return ok;
}

/* A device writes a part. */
static int written_in_part(void)
{
	int ok = 1;
	char *p = fresh(24);

	CK(d.cuMemsetD8Async((uintptr_t)p + 9000, 5, 1000, b));
	CK(d.cuStreamSynchronize(b));
	CK(d.cuMemsetD8Async(dev2, 6, 1000, b));
	CK(d.cuMemcpyDtoHAsync(p + 400000, dev2, 1000, b));
	CK(d.cuStreamSynchronize(b));
	return ok & all(p, 9000, 24) & all(p + 9000, 1000, 5) & all(p + 10000, 390000, 24) &
	       all(p + 400000, 1000, 6) & all(p + 401000, N - 401000, 24);
}

/* Several in the same place, one after the other, and beside it. */
static int again(void)
{
	int ok = 1;
	char *p = fresh(25);

	for (int i = 0; i < 5; i++)
		put_off(p, 26 + i);
	ok &= all(p, N, 30);
	put_off(p, 31);
	copied(p + 12345, 300000, 32);
	return ok & all(p, 12345, 31) & all(p + 12345, 300000, 32) &
	       all(p + 312345, N - 312345, 31);
}

static int unaligned(void)
{
	int ok = 1;
	char *p = pinned();

	memset(p, 77, N + 16384);
	for (int i = 0; i < 6; i++) {
		if (sent) {
			copied(p + 5000, N, 33 + i);
			transfer(sink, p + 5000, N);
			ok &= all(sink, N, 33 + i);
		} else {
			copied(from, N, 33 + i);
			transfer(p + 5000, from, N);
			CK(d.cuMemcpyHtoD(dev2, p + 5000, N));
			ok &= on_device(dev2, N, 33 + i);
		}
		if (sent && i == 5) {
			copied(p + 5000, N, 38);
			must_hide(p);
		}
	}
	return ok & all(p, 5000, 77) & all(p + 5000, N, 38) & all(p + 5000 + N, 16384 - 5000, 77);
}

/* With the whole of it on the device, nothing comes from the host. */
static int to_the_device(void)
{
	int ok = 1;
	char *p = fresh(40);
	uint64_t before = standin_d2d();

	CK(d.cuMemcpyHtoD(dev2, p, N));
	ok &= !deferring || missed || (standin_d2d() == before + 1 && hidden(p + N / 2));
	return ok & on_device(dev2, N, 40) & all(p, N, 40);
}
