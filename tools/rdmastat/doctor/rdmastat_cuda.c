/*
 * rdmastat_cuda.c - the doctor on the hooks of the CUDA driver. A process of this program, with
 * the library preloaded and libcuda loaded, asks for each entry in each of the ways in which
 * programs do, and looks whose code it is given; then it fires those that can be fired on any
 * device and compares the bytes. Whether the library itself trusts them it says in its log.
 *
 * The process is `rdmastat doctor-cuda`. It prints "none TEXT", or lines "ways GROUP GOOD ALL
 * BAD" and "fired GOOD ALL BAD"; a BAD of "-" is none. The entries are those of
 * shim/cuda/cuda_calls.def.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/findlib.h"
#include "doctor/rdmastat_doctor.h"

#define SECONDS 30	/* a driver that has slept may take some to wake */
#define BYTES   (256 * 1024)	/* large enough for the GPU path to look */
#define PER_THREAD 2	/* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */

/* ---- the entries ---- */

enum group { COPIES, WRITERS, READERS, WAITERS, GROUPS };
static const char *const group_names[GROUPS] = { "copies and launches", "other writers", "readers",
						 "waiters" };
static const struct entry { const char *name, *base; enum group group; } entries[] = {
#define CUDA(name, base, flavour, params, args) { #name, #base, COPIES },
#define CUDA_WRITER(name, base) { #name, #base, WRITERS },
#define CUDA_READER(name, base) { #name, #base, READERS },
#define CUDA_WAITER(name, base) { #name, #base, WAITERS },
#include "shim/cuda/cuda_calls.def"
};
#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

/* The ways to an entry. GET_1, GET_2: the two forms of cuGetProcAddress. */
enum way { LINKED, DLSYM, GET_1, GET_2, GET_2_THREAD, WAYS };
static const char *const way_names[WAYS] = {
	"as a symbol", "by dlsym", "by cuGetProcAddress", "by cuGetProcAddress_v2",
	"by cuGetProcAddress_v2 for per-thread streams",
};
static const int versions[] = { 3020, 4000, 7000, 11030, 12000 };
#define VERSIONS (sizeof(versions) / sizeof(versions[0]))

struct driver {
	void *handle;
	int (*get1)(const char *, void **, int, uint64_t);
	int (*get2)(const char *, void **, int, uint64_t, int *);
};

/* NULL: this driver has none. */
static void *entry(const struct driver *d, enum way way, const char *name, const char *base,
		   int version)
{
	void *p = NULL;
	int status;

	switch (way) {
	case LINKED: return dlsym(RTLD_DEFAULT, name);
	case DLSYM:  return dlsym(d->handle, name);
	case GET_1:  return d->get1 && !d->get1(base, &p, version, 0) ? p : NULL;
	default:
		return d->get2 && !d->get2(base, &p, version, way == GET_2_THREAD ? PER_THREAD : 0,
					   &status)
			       ? p
			       : NULL;
	}
}

/* The library's code, by the file that it is in. */
static bool is_hook(const void *p, const char *lib)
{
	Dl_info i;

	return dladdr(p, &i) && i.dli_fname && !strcmp(i.dli_fname, lib);
}

static void prove(const struct driver *d, enum group g, const char *lib)
{
	size_t good = 0, all = 0;
	char bad[128] = "-";

	for (size_t i = 0; i < ENTRIES; i++)
		for (int w = 0; entries[i].group == g && w < WAYS; w++)
			for (size_t v = 0; v < (w < GET_1 ? 1 : VERSIONS); v++) {
				void *p = dlsym(d->handle, entries[i].name)
						  ? entry(d, (enum way)w, entries[i].name,
							  entries[i].base, versions[v])
						  : NULL;

				if (!p)
					continue;
				all++;
				if (is_hook(p, lib))
					good++;
				else if (!strcmp(bad, "-"))
					snprintf(bad, sizeof(bad), "%s %s", entries[i].name,
						 way_names[w]);
			}
	printf("ways\t%s\t%zu\t%zu\t%s\n", group_names[g], good, all, bad);
}

/* ---- firing ---- */

typedef unsigned long long dev_ptr;

struct trial {
	const struct driver *d;
	enum way way;
	void *stream;
	dev_ptr a, b;
	unsigned char *out, *in;
	size_t good, all;
	char bad[128];
};

#define CALL(t, name, v, types, ...) ({ \
	void *fn_ = entry((t)->d, (t)->way, (t)->way == GET_2_THREAD ? "" : #name #v, #name, \
		(t)->way == GET_2_THREAD ? 7000 : 3020); \
	fn_ ? ((int (*) types)fn_)(__VA_ARGS__) : -1; })

static void fired(struct trial *t, const char *what, bool ok)
{
	t->all++;
	t->good += ok;
	if (!ok && !strcmp(t->bad, "-"))
		snprintf(t->bad, sizeof(t->bad), "%s %s", what, way_names[t->way]);
}

/* Fills what is sent with other bytes each time, and what comes back with none of them. */
static void fresh(struct trial *t)
{
	static unsigned seed;

	seed++;
	for (size_t i = 0; i < BYTES; i++)
		t->out[i] = (unsigned char)((i * 2654435761u >> 13) + seed);
	for (size_t i = 0; i < BYTES; i++)
		t->in[i] = (unsigned char)~t->out[i];
}

static bool same(struct trial *t) { return !memcmp(t->in, t->out, BYTES); }

static void fire(struct trial *t)
{
	int r;

	fresh(t);
	r = CALL(t, cuMemcpyHtoD, _v2, (dev_ptr, const void *, size_t), t->a, t->out, BYTES);
	fired(t, "cuMemcpyHtoD", !r);
	r = CALL(t, cuMemcpyDtoD, _v2, (dev_ptr, dev_ptr, size_t), t->b, t->a, BYTES);
	fired(t, "cuMemcpyDtoD", !r);
	r = CALL(t, cuMemcpyDtoH, _v2, (void *, dev_ptr, size_t), t->in, t->b, BYTES);
	fired(t, "cuMemcpyDtoH", !r && same(t));
	fresh(t);
	r = CALL(t, cuMemcpyHtoDAsync, _v2, (dev_ptr, const void *, size_t, void *), t->a, t->out,
		 BYTES, t->stream);
	fired(t, "cuMemcpyHtoDAsync", !r);
	r = CALL(t, cuMemcpyDtoDAsync, _v2, (dev_ptr, dev_ptr, size_t, void *), t->b, t->a, BYTES,
		 t->stream);
	fired(t, "cuMemcpyDtoDAsync", !r);
	r = CALL(t, cuMemcpyDtoHAsync, _v2, (void *, dev_ptr, size_t, void *), t->in, t->b, BYTES,
		 t->stream);
	r = r ? r : CALL(t, cuCtxSynchronize,, (void));
	fired(t, "cuMemcpyDtoHAsync", !r && same(t));
	memset(t->out, 0x5a, BYTES);
	r = CALL(t, cuMemsetD8, _v2, (dev_ptr, unsigned char, size_t), t->a, 0x5a, BYTES);
	r = r ? r : CALL(t, cuMemcpyDtoH, _v2, (void *, dev_ptr, size_t), t->in, t->a, BYTES);
	fired(t, "cuMemsetD8", !r && same(t));
}

/* Device 0, memory on it and on the host. False: *bad says what failed. */
static bool open_device(struct trial *t)
{
	void *ctx = NULL;
	int r;

	t->way = DLSYM;
	r = CALL(t, cuInit,, (unsigned), 0);
	r = r ? r : CALL(t, cuDevicePrimaryCtxRetain,, (void **, int), &ctx, 0);
	r = r ? r : CALL(t, cuCtxSetCurrent,, (void *), ctx);
	r = r ? r : CALL(t, cuStreamCreate,, (void **, unsigned), &t->stream, 0);
	r = r ? r : CALL(t, cuMemAlloc, _v2, (dev_ptr *, size_t), &t->a, BYTES);
	r = r ? r : CALL(t, cuMemAlloc, _v2, (dev_ptr *, size_t), &t->b, BYTES);
	r = r ? r
	      : CALL(t, cuMemHostAlloc, , (void **, size_t, unsigned), (void **)&t->in, BYTES, 0);
	t->out = malloc(BYTES);
	if (r || !t->out)
		snprintf(t->bad, sizeof(t->bad), "device 0 cannot be used: CUDA error %d", r);
	return !r && t->out;
}

int cmd_cuda(int argc, char **argv)
{
	struct driver d = { .handle = dlopen("libcuda.so.1", RTLD_NOW) };
	struct trial t = { .d = &d, .bad = "-" };
	int w;

	if (argc != 2) {
		complain("doctor-cuda is for rdmastat doctor only");
		return EXIT_USAGE;
	}
	alarm(SECONDS);
	if (!d.handle) {
		printf("none\t%s\n", dlerror());
		return EXIT_OK;
	}
	d.get1 = (int (*)(const char *, void **, int, uint64_t))dlsym(d.handle, "cuGetProcAddress");
	d.get2 = (int (*)(const char *, void **, int, uint64_t, int *))dlsym(d.handle,
									     "cuGetProcAddress_v2");
	for (int g = 0; g < GROUPS; g++)
		prove(&d, (enum group)g, argv[1]);
	fflush(stdout);
	if (open_device(&t))
		for (w = 0; w < WAYS; w++) {
			t.way = (enum way)w;
			if (entry(&d, t.way, "cuMemcpyDtoH_v2", "cuMemcpyDtoH", 7000))
				fire(&t);
		}
	printf("fired\t%zu\t%zu\t%s\n", t.good, t.all, t.bad);
	fflush(stdout);
	_exit(EXIT_OK);		/* the driver's own end is not our business */
}

/* ---- the doctor's side ---- */

/* Our other self, its output and the library's log in one pipe. Its pid, or -1. */
static pid_t start(const char *lib, const char *conf, int out)
{
	char exe[PATH_MAX] = "/proc/self/exe", *list;
	pid_t pid = fork();

	if (pid)
		return pid;
	list = preload_with(lib);
	unsetenv("RDMASHIM");
	unsetenv("RDMASHIM_STATS");
	unsetenv("RDMASHIM_LOG_FILE");
	if (!list || setenv("LD_PRELOAD", list, 1) || setenv("RDMASHIM_CONF", conf, 1) ||
	    setenv("RDMASHIM_LOG", "3", 1) || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(126);
	execl(exe, "rdmastat", "doctor-cuda", lib, (char *)NULL);
	_exit(127);
}

struct answers {
	size_t ways, good, groups, fired, right;
	char bad[128], none[200], gpu_path[200], each[200];
};

static void take_line(struct answers *a, char *line)
{
	char *gpu_path = strstr(line, "GPU path "), group[64], bad[128];
	size_t good, all;

	line[strcspn(line, "\n")] = '\0';
	if (!strncmp(line, "none\t", 5))
		snprintf(a->none, sizeof(a->none), "%.*s", (int)sizeof(a->none) - 1, line + 5);
	else if (sscanf(line, "ways\t%63[^\t]\t%zu\t%zu\t%127[^\t]", group, &good, &all, bad) ==
		 4) {
		snprintf(a->each + strlen(a->each), sizeof(a->each) - strlen(a->each), "%s%s %zu",
			 a->groups ? ", " : "", group, good);
		a->ways += all;
		a->good += good;
		a->groups++;
		if (strcmp(bad, "-") && !a->bad[0])
			snprintf(a->bad, sizeof(a->bad), "%s", bad);
	} else if (sscanf(line, "fired\t%zu\t%zu\t%127[^\t]", &good, &all, bad) == 3) {
		a->right = good;
		a->fired = all;
		if (strcmp(bad, "-") && !a->bad[0])
			snprintf(a->bad, sizeof(a->bad), "%s", bad);
	} else if (gpu_path &&
		   (!strncmp(gpu_path, "GPU path on", 11) ||
		    !strncmp(gpu_path, "GPU path off", 12)) &&
		   !a->gpu_path[0]) {
		snprintf(a->gpu_path, sizeof(a->gpu_path), "%.*s", (int)sizeof(a->gpu_path) - 1,
			 gpu_path + 9);
	}
}

static void judge(struct doctor *d, const struct answers *a, int status)
{
	enum reason r = REASON_NONE;

	if (a->groups < GROUPS)
		verdict(d, V_FAIL, "gpu hooks",
			"report it, with what LD_PRELOAD=... rdmastat doctor-cuda LIB prints",
			"the process that tried them ended early (status %d)", status);
	else if (a->good < a->ways)
		verdict(d, V_FAIL, "gpu hooks", reason_remedy(REASON_DEVICE_HOOKS),
			"%zu of %zu ways to the driver lead through the library; not %s: no GPU "
			"path",
			a->good, a->ways, a->bad);
	else
		verdict(d, V_OK, "gpu hooks", "",
			"all %zu ways to the driver lead through the library: %s", a->ways,
			a->each);
	if (a->groups < GROUPS)
		return;
	if (!a->fired || a->right < a->fired)
		verdict(d, V_FAIL, "gpu copies",
			"nvidia-smi says whether device 0 works; then report it",
			"%zu of %zu that were tried did what they should; not %s", a->right,
			a->fired, a->bad[0] ? a->bad : "one");
	else
		verdict(d, V_OK, "gpu copies", "",
			"%zu on device 0 through the hooks, every byte compared", a->fired);
	for (unsigned i = 0; i < REASON_COUNT; i++)
		if (!strncmp(a->gpu_path, "off: ", 5) && !strcmp(a->gpu_path + 5, reason_name(i)))
			r = (enum reason)i;
	if (!strcmp(a->gpu_path, "on"))
		verdict(d, V_OK, "GPU path", "",
			policy_tunables(d->policy)->device
				? "possible here, and on by the policy"
				: "possible here; off by the policy (device off)");
	else
		verdict(d, policy_tunables(d->policy)->device == 2 ? V_FAIL : V_NONE, "GPU path",
			r ? reason_remedy(r) : "", "not possible here%s: %s",
			a->gpu_path[0] ? "" : ", the library does not say why",
			r ? reason_text(r) : a->gpu_path);
}

void check_cuda(struct doctor *d)
{
	char conf[300], line[1024], *tmp = getenv("TMPDIR");
	struct answers a = { 0 };
	int p[2], status = 0, fd;
	pid_t pid;
	FILE *f;

	snprintf(conf, sizeof(conf), "%s/rdmashim-doctor.XXXXXX", tmp && *tmp ? tmp : "/tmp");
	fd = mkstemp(conf);
	if (fd < 0)
		return;		/* the transfers have said so */
	if (write(fd, "device eager\n", 13) != 13 || pipe(p)) {
		unlink(conf);
		close(fd);
		return;
	}
	close(fd);
	pid = start(d->lib, conf, p[1]);
	close(p[1]);
	f = fdopen(p[0], "r");
	while (f && fgets(line, sizeof(line), f))
		take_line(&a, line);
	if (f)
		fclose(f);
	if (pid > 0)
		waitpid(pid, &status, 0);
	unlink(conf);
	if (a.none[0] && d->has_gpu)
		verdict(d, V_FAIL, "gpu hooks",
			"install the driver's libcuda.so.1 (libcuda1), or put it into the "
			"container",
			"%s", a.none);
	else if (!a.none[0])
		judge(d, &a, status);
}
