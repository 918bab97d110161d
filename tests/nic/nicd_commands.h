/*
 * nicd_commands.h - a part of nicd.c: commands.
 */
static struct { uint64_t at; char text[256]; } script[256];
static unsigned script_n, script_at;

static int command(char *text, char *out, size_t n);

static int script_read(const char *path)
{
	FILE *f = fopen(path, "re");
	char line[300];
	uint64_t start = now_ns();
	int used;
	double ms;

	script_n = script_at = 0;
	while (f && script_n < 256 && fgets(line, sizeof line, f)) {
		line[strcspn(line, "#\n")] = 0;
		if (sscanf(line, "%lf %n", &ms, &used) != 1)
			continue;
		script[script_n].at = start + (uint64_t)(ms * 1e6);
		snprintf(script[script_n++].text, sizeof script[0].text, "%.255s", line + used);
	}
	if (f)
		fclose(f);
	return f ? 0 : errno;
}

static uint64_t script_run(uint64_t now)
{
	char out[NIC_DATA];

	while (script_at < script_n && script[script_at].at <= now) {
		int r = command(script[script_at].text, out, sizeof out);

		if (r)
			fprintf(stderr, "nicd: %s: %s\n", script[script_at].text, strerror(r));
		script_at++;
	}
	return script_at < script_n ? script[script_at].at : NEVER;
}

static void stat_node(const struct node *n, char *out, size_t max)
{
	snprintf(out, max,
		 "%s: %lu packets, %lu bytes out, %lu in, %lu lost, %lu marked, %lu pauses, "
		 "%lu slowed, %lu spaced, "
		 "%lu bytes registered, %lu ns in the buffer each, %lu chunks in, "
		 "%lu late by more than 1 us, most %lu ns",
		 n->name, n->packets, n->tx_bytes, n->rx_bytes, n->lost, n->marked, n->paused,
		 n->slowed, n->spaced,
		 n->registered, n->queued_n ? n->queued / n->queued_n : 0, n->chunks, n->late,
		 n->late_max);
}

static void fail_qps(struct node *n)
{
	for (unsigned i = 0; i < QPS; i++)
		if (qps[i] && qps[i]->node == n && qps[i]->state >= IBV_QPS_RTR) {
			async_event(qps[i]->ctx, IBV_EVENT_QP_FATAL, qps[i], NULL);
			qp_error(qps[i]);
		}
}

static void clear_node(struct node *n)
{
	n->packets = n->chunks = n->tx_bytes = n->rx_bytes = 0;
	n->lost = n->marked = n->paused = n->slowed = n->spaced = n->late = n->late_max = 0;
	n->queued = n->queued_n = 0;
}

static int node_command(const char *verb, struct node *n, const char *arg, char *out, size_t max)
{
	if (!n)
		return ENOENT;
	if (!strcmp(verb, "stat"))
		stat_node(n, out, max);
	else if (!strcmp(verb, "down") || !strcmp(verb, "up"))
		node_port(n, verb[0] == 'u');
	else if (!strcmp(verb, "remove"))
		node_remove(n);
	else if (!strcmp(verb, "add"))
		n->removed = false;
	else if (!strcmp(verb, "stall"))
		n->stalled_until = now_ns() + strtoul(arg, NULL, 0) * 1000000;
	else if (!strcmp(verb, "fail"))
		fail_qps(n);
	else if (!strcmp(verb, "clear"))
		clear_node(n);
	else
		return EINVAL;
	return 0;
}

static struct node *node_known(const char *name)
{
	for (unsigned i = 0; i < nodes_n; i++)
		if (!strcmp(nodes[i]->name, name))
			return nodes[i];
	return NULL;
}

static int command(char *text, char *out, size_t n)
{
	char a[64] = "", b[64] = "", c[64] = "", d[64] = "";

	sscanf(text, "%63s %63s %63s %63s", a, b, c, d);
	out[0] = 0;
	if (!strcmp(a, "set"))
		return knob_set(text + 3, out, n);
	if (!strcmp(a, "drop"))
		return net_fault(b, strtol(c, NULL, 0), d[0] ? strtol(d, NULL, 0) : 1);
	if (!strcmp(a, "script"))
		return script_read(b);
	if (!strcmp(a, "listens"))
		return cm_listens((uint16_t)atoi(b)) ? 0 : ENOENT;
	if (!strcmp(a, "nodes")) {
		snprintf(out, n, "%u", nodes_n);
		return 0;
	}
	return node_command(a, node_known(b), c, out, n);
}
