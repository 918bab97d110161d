/*
 * standin_api.h - a part of standin.c: the API of streams, events and copies.
 */
EXPORT int cuStreamCreate(CUstream *s, unsigned flags)
{
	if (!now_current())
		return 201;
	*s = stream_make(now_current(), !(flags & 1));
	return OK;
}

EXPORT int cuStreamDestroy_v2(CUstream s)
{
	pthread_mutex_lock(&big);
	for (int i = 0; i < STREAMS; i++)
		if (streams[i] == s)
			streams[i] = NULL;
	pthread_mutex_unlock(&big);
	pthread_mutex_lock(&s->m);
	s->ending = true;
	pthread_cond_broadcast(&s->c);
	pthread_mutex_unlock(&s->m);
	pthread_join(s->thread, NULL);
	free(s);
	return OK;
}

EXPORT int cuStreamDestroy(CUstream s) { return cuStreamDestroy_v2(s); }

EXPORT int cuStreamSynchronize(CUstream st)
{
	CUstream s = real_stream(st);

	if (!s)
		return NOTINIT;
	if (s->capturing || forbidden())
		return CAPTURE;
	if (atomic_load(&stalls))
		stall();
	stream_wait(s, s->asked);
	return OK;
}

EXPORT int cuStreamQuery(CUstream st)
{
	CUstream s = real_stream(st);
	int r;

	if (!s)
		return NOTINIT;
	if (s->capturing) {
		fprintf(stderr, "standin: a capture was spoiled by cuStreamQuery\n");
		return CAPTURE;
	}
	if (forbidden())
		return CAPTURE;
	pthread_mutex_lock(&s->m);
	r = s->done == s->asked ? OK : NOTREADY;
	pthread_mutex_unlock(&s->m);
	return r;
}

EXPORT int cuStreamIsCapturing(CUstream st, int *status)
{
	CUstream s = real_stream(st);

	*status = s && s->capturing;
	return s ? OK : NOTINIT;
}
EXPORT int cuStreamBeginCapture_v2(CUstream s, int mode)
{
	s->mode = mode;
	s->spoiled = false;
	captures += mode == 0;
	s->capturing = true;
	return OK;
}
EXPORT int cuStreamEndCapture(CUstream s, void **g)
{
	captures -= s->mode == 0;
	s->capturing = false;
	*g = s->graph;
	s->graph = NULL;
	return s->spoiled ? SPOILED : OK;
}
EXPORT int cuGraphInstantiateWithFlags(void **x, void *g, unsigned long long flags)
{
	(void)flags;
	*x = g;
	return OK;
}
EXPORT int cuGraphExecDestroy(void *x) { (void)x; return OK; }
EXPORT int cuGraphDestroy(void *g) { (void)g; return OK; }

static void graph_put(struct op *o, CUstream s)
{
	struct op *n;

	if (!o)
		return;
	graph_put(o->next, s);
	n = op(o->run);
	n->dst = o->dst;
	n->src = o->src;
	n->n = o->n;
	n->value = o->value;
	submit(s, n);
}
EXPORT int cuGraphLaunch(void *x, CUstream st)
{
	CUstream s = real_stream(st);

	if (!s)
		return NOTINIT;
	graph_put(x, s);
	return OK;
}
EXPORT int cuThreadExchangeStreamCaptureMode(int *m)
{
	int old = capture_mode;

	capture_mode = *m;
	*m = old;
	return OK;
}

EXPORT int cuStreamWaitEvent(CUstream st, CUevent e, unsigned flags)
{
	CUstream s = real_stream(st);
	struct op *o;

	(void)flags;
	if (!s)
		return NOTINIT;
	o = op(wait_op);
	o->ev = e;
	o->ticket = e->asked;
	submit(s, o);
	return OK;
}

EXPORT int cuEventCreate(CUevent *e, unsigned flags)
{
	(void)flags;
	events_made++;
	*e = calloc(1, sizeof **e);
	return OK;
}
EXPORT int cuEventDestroy_v2(CUevent e) { (void)e; events_made--; return OK; }
EXPORT int cuEventRecord(CUevent e, CUstream st)
{
	CUstream s = real_stream(st);
	struct op *o;

	if (!s)
		return NOTINIT;
	o = op(set_op);
	o->ev = e;
	o->ticket = atomic_fetch_add(&e->asked, 1) + 1;
	submit(s, o);
	return OK;
}
EXPORT int cuEventQuery(CUevent e)
{
	return forbidden() ? CAPTURE : e->done >= e->asked ? OK : NOTREADY;
}
EXPORT int cuEventSynchronize(CUevent e) { while (e->done < e->asked) usleep(20); return OK; }

#define BOTH(name, suffix, params, body0, body2) EXPORT int name params { body0; \
	} EXPORT int name##suffix params { body2; }
#define SYNC_COPY(name, T1, T2) BOTH(name, _ptds, (T1 d, T2 s, size_t n), \
	return copy(P(d), P(s), n, NULL, true), \
	return copy(P(d), P(s), n, P(2), true))
#define ASYNC_COPY(name, T1, T2) BOTH(name, _ptsz, (T1 d, T2 s, size_t n, CUstream st), \
	return copy(P(d), P(s), n, st, false), \
	return copy(P(d), P(s), n, st ? st : P(2), false))
SYNC_COPY(cuMemcpyDtoH_v2, void *, CUdeviceptr)
SYNC_COPY(cuMemcpyHtoD_v2, CUdeviceptr, const void *)
SYNC_COPY(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr)
SYNC_COPY(cuMemcpy, CUdeviceptr, CUdeviceptr)
ASYNC_COPY(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr)
ASYNC_COPY(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *)
ASYNC_COPY(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr)
ASYNC_COPY(cuMemcpyAsync, CUdeviceptr, CUdeviceptr)

static int copy2d(const struct standin_2d *c, CUstream st, bool sync)
{
	const char *src = (c->src_type == 1 ? (const char *)c->src_host : P(c->src_device)) +
			  c->src_y * c->src_pitch + c->src_x;
	char *dst = (c->dst_type == 1 ? (char *)c->dst_host : P(c->dst_device)) +
		    c->dst_y * c->dst_pitch + c->dst_x;
	int r = 0;

	for (size_t y = 0; y < c->height && !r; y++)
		r = copy(dst + y * c->dst_pitch, src + y * c->src_pitch, c->width, st, sync);
	return r;
}
BOTH(cuMemcpy2D_v2, _ptds, (const struct standin_2d *c), return copy2d(c, NULL, true),
     return copy2d(c, P(2), true))
BOTH(cuMemcpy2DUnaligned_v2, _ptds, (const struct standin_2d *c), return copy2d(c, NULL, true),
     return copy2d(c, P(2), true))
BOTH(cuMemcpy2DAsync_v2, _ptsz, (const struct standin_2d *c, CUstream st),
     return copy2d(c, st, false), return copy2d(c, st ? st : P(2), false))
BOTH(cuMemsetD8_v2, _ptds, (CUdeviceptr d, unsigned char v, size_t n),
     return fill(P(d), v, n, NULL), return fill(P(d), v, n, P(2)))
BOTH(cuMemsetD8Async, _ptsz, (CUdeviceptr d, unsigned char v, size_t n, CUstream st),
     return fill(P(d), v, n, st), return fill(P(d), v, n, st ? st : P(2)))
/* An "array" is device memory. */
BOTH(cuMemcpyHtoA_v2, _ptds, (void *a, size_t at, const void *p, size_t n),
     return copy((char *)a + at, p, n, NULL, true), return copy((char *)a + at, p, n, P(2), true))
static void wait_value_op(struct op *o)
{
	while (*(volatile uint32_t *)o->dst != (uint32_t)o->value && !broken)
		usleep(20);
}
EXPORT int cuStreamWaitValue32_v2(CUstream st, CUdeviceptr p, uint32_t v, unsigned flags)
{
	CUstream s = real_stream(st);
	struct op *o;

	(void)flags;
	if (!s)
		return NOTINIT;
	o = op(wait_value_op);
	o->dst = as_device(P(p));
	o->value = (int)v;
	submit(s, o);
	return OK;
}
/* one of those that only count: writes n words through the device's mapping */
BOTH(cuMemsetD2D8Async, _ptsz,
     (CUdeviceptr d, size_t pitch, unsigned char v, size_t w, size_t h, CUstream st), (void)pitch;
     return fill(P(d), v, w *h, st), (void)pitch; return fill(P(d), v, w *h, st ? st : P(2)))

/* the same with the thread's stream for 0 */
#define THREADS(name, params, args) EXPORT int name##_ptsz params { st = st ? st : P(2); \
	return name args; }
THREADS(cuStreamSynchronize, (CUstream st), (st))
THREADS(cuStreamQuery, (CUstream st), (st))
THREADS(cuStreamIsCapturing, (CUstream st, int *status), (st, status))
THREADS(cuStreamEndCapture, (CUstream st, void **g), (st, g))
EXPORT int cuGraphLaunch_ptsz(void *x, CUstream st) { return cuGraphLaunch(x, st ? st : P(2)); }
THREADS(cuStreamBeginCapture_v2, (CUstream st, int mode), (st, mode))
THREADS(cuStreamWaitEvent, (CUstream st, CUevent e, unsigned flags), (st, e, flags))
THREADS(cuEventRecord, (CUevent e, CUstream st), (e, st))

static void kernel_op(struct op *o) { o->kernel(o->param); }

static int launch(void *f, CUstream st, void **params)
{
	CUstream s = real_stream(st);
	struct op *o;

	if (!s)
		return NOTINIT;
	if (s->capturing)
		return OK;
	o = op(kernel_op);
	o->kernel = (void (*)(void **))f;
	for (int i = 0; i < 8 && params && params[i]; i++)
		o->param[i] = params[i];
	submit(s, o);
	return OK;
}
#define KERNEL_ARGS (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
	unsigned bz, \
	unsigned sh, CUstream st, void **params, void **extra)
#define UNUSED_ARGS (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)sh, \
	(void)extra
BOTH(cuLaunchKernel, _ptsz, KERNEL_ARGS, UNUSED_ARGS; return launch(f, st, params),
     UNUSED_ARGS; return launch(f, st ? st : P(2), params))
EXPORT int cuLaunchHostFunc(CUstream st, void (*fn)(void *), void *arg)
{
	void *params[] = { arg, NULL };

	return launch((void *)fn, st, params);	/* a function of one pointer gets an array: tests
						 * know */
}
