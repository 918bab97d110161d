/*
 * standin_streams.h - a part of standin.c: streams: what is queued, and when it is done.
 */
struct op {
	void (*run)(struct op *);
	struct op *next;
	void *dst;
	const void *src;
	size_t n;
	CUevent ev;
	uint64_t ticket;
	void (*kernel)(void **);
	void *param[8];
	int value;
};

struct CUstream_st {
	pthread_t thread;
	pthread_mutex_t m;
	pthread_cond_t c;
	struct op *head, *tail;
	uint64_t asked, done;
	CUcontext ctx;
	struct op *graph;	/* captured so far, the newest first */
	bool blocking, capturing, ending, dead, spoiled;
	int mode;
	unsigned seed;
};

struct CUevent_st {
	_Atomic uint64_t asked, done;
};

struct CUctx_st {
	int dev, refs;
	CUstream legacy;
};

static pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st primary[2];
#define STREAMS 256
static CUstream streams[STREAMS];
static __thread CUcontext current[8];
static __thread int depth;
static __thread CUstream mine;
static bool inited;
static unsigned max_delay = 200, seed = 1;
static __thread int capture_mode;
static _Atomic int captures;	/* in global mode */
static _Atomic uint64_t d2d;
uint64_t standin_d2d(void) { return d2d; }
static _Atomic int broken;	/* the context is lost, or the driver at its end: no copy to the
				 * host works */
void standin_break(void) { broken = 1; }

static unsigned queue_max;
static _Atomic int full;
int standin_full(void) { return full; }

static void pause_a_little(CUstream s)
{
	unsigned r = (unsigned)rand_r(&s->seed);

	if (max_delay && r % 4)
		usleep(r / 4 % max_delay);
}

static void *stream_main(void *arg)
{
	CUstream s = arg;

	pthread_mutex_lock(&s->m);
	for (;;) {
		struct op *o;

		while (!s->head && !s->ending)
			pthread_cond_wait(&s->c, &s->m);
		if (!s->head)
			break;
		o = s->head;
		pthread_mutex_unlock(&s->m);
		pause_a_little(s);
		if (!s->dead)
			o->run(o);
		pthread_mutex_lock(&s->m);
		s->head = o->next;
		if (!s->head)
			s->tail = NULL;
		s->done++;
		free(o);
		pthread_cond_broadcast(&s->c);
	}
	pthread_mutex_unlock(&s->m);
	return NULL;
}

static CUstream stream_make(CUcontext ctx, bool blocking)
{
	CUstream s = calloc(1, sizeof *s);

	pthread_mutex_init(&s->m, NULL);
	pthread_cond_init(&s->c, NULL);
	s->ctx = ctx;
	s->blocking = blocking;
	pthread_mutex_lock(&big);
	s->seed = seed++ * 2654435761u;
	for (int i = 0; i < STREAMS; i++)
		if (!streams[i]) {
			streams[i] = s;
			break;
		}
	pthread_mutex_unlock(&big);
	pthread_create(&s->thread, NULL, stream_main, s);
	return s;
}

static void stream_wait(CUstream s, uint64_t until)
{
	pthread_mutex_lock(&s->m);
	while (s->done < until)
		pthread_cond_wait(&s->c, &s->m);
	pthread_mutex_unlock(&s->m);
}

static uint64_t put(CUstream s, struct op *o)
{
	uint64_t t;

	pthread_mutex_lock(&s->m);
	while (queue_max && s->asked - s->done >= queue_max && !s->ending) {
		full++;
		pthread_cond_wait(&s->c, &s->m);
		full--;
	}
	if (s->tail)
		s->tail->next = o;
	else
		s->head = o;
	s->tail = o;
	t = ++s->asked;
	pthread_cond_broadcast(&s->c);
	pthread_mutex_unlock(&s->m);
	return t;
}

/* Something that global captures do not allow: they are spoiled, and it fails. */
static bool forbidden(void)
{
	bool any = false;

	if (!captures || capture_mode == 2)
		return false;
	pthread_mutex_lock(&big);
	for (int i = 0; i < STREAMS; i++)
		if (streams[i] && streams[i]->capturing && streams[i]->mode == 0)
			any = streams[i]->spoiled = true;
	pthread_mutex_unlock(&big);
	if (any)
		fprintf(stderr, "standin: a capture was spoiled\n");
	return any;
}

static CUcontext now_current(void) { return depth ? current[depth - 1] : NULL; }

/* Stream 0 and 1: the context's own; 2: the thread's. */
static CUstream real_stream(CUstream s)
{
	CUcontext ctx = now_current();

	if ((uintptr_t)s > 2)
		return s;
	if (!ctx)
		return NULL;
	if ((uintptr_t)s == 2) {
		if (!mine)
			mine = stream_make(ctx, true);
		return mine;
	}
	return ctx->legacy;
}

static void wait_op(struct op *o)
{
	while (atomic_load(&o->ev->done) < o->ticket)
		usleep(20);
}

/* The last record counts, whichever stream gets there first. */
static void set_op(struct op *o)
{
	uint64_t was = atomic_load(&o->ev->done);

	while (was < o->ticket && !atomic_compare_exchange_weak(&o->ev->done, &was, o->ticket))
		;
}

static void free_event_op(struct op *o) { wait_op(o); free(o->ev); }

static struct op *op(void (*run)(struct op *))
{
	struct op *o = calloc(1, sizeof *o);

	o->run = run;
	return o;
}

/* The legacy stream and the blocking ones wait for each other. */
static void join_streams(CUstream s, CUstream other)
{
	struct op *o = op(set_op), *w = op(free_event_op);
	CUevent e = calloc(1, sizeof *e);

	o->ev = w->ev = e;
	o->ticket = w->ticket = 1;
	put(other, o);
	put(s, w);
}

static uint64_t submit(CUstream s, struct op *o)
{
	CUstream list[STREAMS];
	int n = 0;

	pthread_mutex_lock(&big);
	for (int i = 0; i < STREAMS; i++)
		if (streams[i] && streams[i] != s && streams[i]->ctx == s->ctx &&
		    streams[i]->blocking &&
		    (s == s->ctx->legacy || (s->blocking && streams[i] == s->ctx->legacy)) &&
		    streams[i]->done != streams[i]->asked)
			list[n++] = streams[i];
	pthread_mutex_unlock(&big);
	for (int i = 0; i < n; i++)
		join_streams(s, list[i]);
	return put(s, o);
}
