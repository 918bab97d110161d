/*
 * record.c - records that come over a queue pair, and the token of a connection request: any
 * bytes from another host. The objects are compiled into this file, for what they keep to
 * themselves.
 *
 * LINK: rdma/shm/segment.c rdma/verbs/verbs.c rdma/verbs/rc_cost.c shim/base/procfs.c
 */
#include "../../rdma/verbs/rc.c"
#include "../../rdma/verbs/rc_mem.c"
#include "../../rdma/verbs/rc_wait.c"
#include "../../rdma/verbs/rc_stuck.c"
#include "../../rdma/verbs/rc_pull.c"
#define error cm_error
#include "../../rdma/verbs/child.c"
#include "../../rdma/verbs/cm.c"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define SLOTS 4
#define LARGE 16384

static void no_ring(void *arg, uint64_t bells) { (void)arg; (void)bells; }
static void no_death(void *arg) { (void)arg; }
static void no_watch(void *arg) { (void)arg; }

static void token(const uint8_t *d, size_t n)
{
	struct cm c = { .state = CM_LISTEN };
	struct rdma_cm_event e = { 0 };
	uint8_t *p = malloc(n ? n : 1);

	memcpy(p, d, n);
	memset(c.token, 0x5a, sizeof c.token);
	e.param.conn.private_data = n ? p : NULL;
	e.param.conn.private_data_len = n > 255 ? 255 : (uint8_t)n;
	if (token_right(&c, &e) != (n >= CM_TOKEN && !memcmp(p, c.token, CM_TOKEN)))
		abort();
	free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n)
{
	static struct segment a;
	static const struct rc_conf conf = { .ring = no_ring, .died = no_death, .busy = no_death,
					     .watch = no_watch };
	static struct rc *rc;
	static uint8_t *large;
	int fd;

	token(d, n);
	if (!rc) {
		if (segment_create(&a, SLOTS, 4096, 0, &fd) || !(rc = rc_new(&a, &conf)))
			abort();
		close(fd);
		large = malloc(LARGE);
		a.permanent = true;	/* what a reset gives back takes longer than all the rest */
	}
	for (uint32_t i = 0; i < SLOTS; i++) {
		segment_slot_reset(&a, i);
		rc->slot[i] = (struct rc_slot){ .bound = i != 3, .life = (uint16_t)i,
						.rx = { ring_of(rc, i, 1), a.ring_size, NULL } };
	}
	rc->slot[1].large_rx = (struct rc_ring){ large, LARGE, NULL };
	rc->dead = true;		/* there is no device to post to */
	rc->reads_most = RC_READS;
	rc->sent = 8;
	rc->peer_acked = 0;
	while (n > 1) {			/* a length, then a record of that many bytes, where
					 * nothing else is */
		uint32_t len = (uint32_t)(d[0] | (d[1] & 3) << 8);
		struct rc_rec *r;

		d += 2;
		n -= 2;
		if (len > n)
			len = (uint32_t)n;
		r = malloc(len ? len : 1);
		memcpy(r, d, len);
		if (got_record(rc, r, len) && rc->peer_acked > rc->sent)
			abort();
		free(r);
		d += len;
		n -= len;
	}
	return 0;
}
