/*
 * cm.c - connection events of librdmacm in any order that a host on the network can bring about,
 * with any private data. Who has not shown the token is never accepted; nothing is used after it
 * was given back; nothing is left at the end. Input: steps of an operation, which connection, an
 * argument; private data follows its length.
 *
 * LINK: shim/base/procfs.c
 */
#include <sys/eventfd.h>
#define error cm_error
#include "../../rdma/verbs/child.c"
#include "../../rdma/verbs/cm.c"
#undef error
#include "fake_cm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct verbs verbs;
int verbs_load(void) { return 0; }
bool verbs_loaded(void) { return true; }
static bool open_fails;
int rc_open(struct rc *rc, struct rdma_cm_id *id)
{
	(void)rc;
	fake_id_of(id);
	return open_fails ? -ENOMEM : 0;
}
void rc_release(struct rc *rc) { (void)rc; }

#define CMS 4
static struct cm cms[CMS];
static const uint8_t token[CM_TOKEN] = "the right token";
static const uint8_t *shown;		/* private data of the last request */
static size_t peeked_n;

static int fake_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	(void)p;
	fake_id_of(id)->accepted = true;
	if (peeked_n < CM_TOKEN || memcmp(shown, token, CM_TOKEN))
		abort();
	return fake_failing(6) ? -1 : 0;
}

static void changed(struct cm *c)
{
	if (c < cms || c >= cms + CMS || c->state == CM_NONE)
		abort();
}

static bool ours(const struct rdma_cm_id *id)
{
	for (int i = 0; i < CMS; i++)
		if (cms[i].id == id || cms[i].listen == id)
			return true;
	return false;
}

static void event(const uint8_t **d, size_t *n, uint8_t which, uint8_t arg)
{
	size_t len = 0;
	const uint8_t *p = *d;

	if (*n && arg & 128) {
		len = p[0] < *n ? p[0] : *n - 1;
		p++;
		*d = p + len;
		*n -= len + 1;
	}
	shown = arg & 32 ? token : p;
	peeked_n = arg & 32 ? CM_TOKEN : len;
	fake_happens(&fake_ids[which % 16], arg & 31, arg & 64 ? -ECONNREFUSED : (int)which << 20,
		     shown, peeked_n);
	cm_events(changed);
}

int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n)
{
	static struct ibv_context device;
	struct sockaddr a = { .sa_family = AF_INET };
	struct fake_id *f;

	if (!fake_device) {
		device.async_fd = dup(2);
		device.cmd_fd = dup(2);
	}
	fake_cm_init(&device);
	cm_start();
	cm_fails = 0;
	open_fails = false;
	for (int i = 0; i < 60 && n > 2; i++) {
		uint8_t op = d[0] & 7, which = d[1], arg = d[2];
		struct cm *c = &cms[which % CMS];

		d += 3;
		n -= 3;
		switch (op) {
		case 0:
			if (c->state == CM_NONE && !c->id && !c->listen)
				cm_listen(c, NULL, &a, token);
			break;
		case 1:
			if (c->state == CM_NONE && !c->id && !c->listen)
				cm_connect(c, NULL, NULL, &a, token);
			break;
		case 2: cm_hangup(c); cm_close(c); break;
		case 3: cm_fails = arg; open_fails = which & 1; break;
		case 4: cm_probe(&a); break;
		default: event(&d, &n, which, arg);
		}
	}
	cm_fails = 0;
	for (int i = 0; i < CMS; i++) {
		cm_hangup(&cms[i]);
		cm_close(&cms[i]);
	}
	for (f = fake_ids; f < fake_ids + FAKE_IDS; f++)	/* what watches a device stays */
		if (f->id &&
		    (ours(f->id) || !device_of(&device) || device_of(&device)->watch != f->id))
			abort();
	return 0;
}
