/*
 * net_world.h - for tests of the real discovery_net.c and net_proof.c, which include them and then
 * this: what the rest of the library would give, with one stream, 0, whose end the test is.
 */
/* ---- what the rest of the library would give */
_Atomic(const struct policy *) shim_policy;
_Atomic(const struct policy_tunables *) shim_tun;
struct link links[LINK_MAX];
_Atomic uint32_t links_top;
static struct stream stream;
static int watched;

struct stream *stream_at(uint32_t index) { return index ? NULL : &stream; }
uint32_t streams_top(void) { return 1; }
struct bell *loop_bell(void)
{
	static struct bell b;

	if (!b.fd)
		b.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	return &b;
}

int loop_watch_fd(int fd, uint32_t events, enum loop_kind kind, uint32_t n)
{
	(void)fd;
	(void)events;
	(void)kind;
	(void)n;
	watched++;
	return 0;
}
void loop_unwatch_fd(int fd) { (void)fd; watched--; }
static int far_available(const struct sockaddr *local) { (void)local; return 0; }

static int far_hello(int fd, const struct sockaddr_storage *host, uint32_t *index)
{
	(void)fd, (void)host, (void)index;
	return -ENODEV;
}

static int far_welcome(int fd, const struct sockaddr_storage *host, const struct ctl_msg *m)
{
	(void)fd, (void)host, (void)m;
	return -ENODEV;
}

static const struct path near;
static const struct path far = {
	.kind = PATH_RDMA, .far = true, .available = far_available, .hello = far_hello,
	.welcome = far_welcome,
};
const struct path *const paths[PATH_KINDS] = { &near, &near, &far };
const struct path *path_between_hosts(void) { return &far; }
int netkey_check(const char *file) { (void)file; return -ENOKEY; }
bool netkey_mac(const char *file, const void *d, size_t n, uint8_t mac[NETKEY_MAC])
{
	(void)file;
	(void)d;
	(void)n;
	(void)mac;
	return false;
}
bool netkey_same(const uint8_t *a, const uint8_t *b) { (void)a; (void)b; return false; }
static enum reason ended;		/* why the last call has */
void search_call_ended(struct stream *s, enum reason why)
{
	ended = why;
	s->search.state = SEARCH_LISTEN;
}
void search_version(struct stream *s, uint32_t theirs)
{
	(void)theirs;
	s->search.state = SEARCH_FAILED;
}
void version_hello(struct ctl_msg *m) { m->type = CTL_HELLO; m->version = CTL_VERSION; }
void version_heard(const struct ctl_msg *m, pid_t pid) { (void)m; (void)pid; }

/* As in search.c. */
void search_name_close(struct stream *s)
{
	loop_unwatch_fd(s->search.fd);
	rights_end(s->search.fd);
	s->search.fd = -1;
}

static int listener;
static struct sockaddr_in port;

static void with_port(int n)
{
	struct policy_error err;
	struct policy *p;
	char text[100];

	snprintf(text, sizeof text,
		 "discovery_port %d\nrdma_networks 127.0.0.0/8\npeer_users 31337\n", n);
	ck_assert_int_eq(policy_parse(text, strlen(text), "test", &p, &err), 0);
	atomic_store(&shim_tun, policy_tunables(p));
	atomic_store(&shim_policy, p);
}

/* A port of ours: the other host's, or one that is free by then. */
static void begin(bool theirs)
{
	struct sockaddr_in local = { .sin_family = AF_INET, .sin_port = htons(7),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof port;

	port = local;
	port.sin_port = 0;
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(bind(listener, (void *)&port, sizeof port), 0);
	ck_assert_int_eq(getsockname(listener, (void *)&port, &len), 0);
	if (theirs)
		ck_assert_int_eq(listen(listener, 4), 0);
	else
		close(listener);
	with_port(ntohs(port.sin_port));
	memset(&stream, 0, sizeof stream);
	memcpy(&stream.addr.local, &local, sizeof local);
	local.sin_port = htons(9);
	memcpy(&stream.addr.peer, &local, sizeof local);
	stream.addr.known = true;
	stream.search.path = PATH_RDMA;
	stream.search.fd = -1;
	stream.role = ROLE_SERVER;
	stream.search.state = SEARCH_LISTEN;
	atomic_store(&stream.mode, 1);
	ck_assert_int_ne(atomic_load(&stream.mode), MODE_FREE);
	watched = 0;
}
