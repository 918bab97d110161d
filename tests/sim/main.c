/*
 * main.c - sim, the simulator of the cut/rewind machine. See usage().
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *id, *plainer;
} rules[RULES] = {
#define CUT_RULE(id, doc) [CUT_RULE_##id] = { #id, doc },
#include "../../shim/cut/cut.def"
#define ENV_RULE(id, doc) [ENV_RULE_##id] = { #id, doc },
#include "env.def"
};

static int usage(void)
{
	fprintf(stderr,
		"usage: sim --random N [--seed S]   N random schedules\n"
		"       sim --replay S [-v]         the schedule of one seed, -v: every step\n"
		"       sim --exhaustive            every schedule of small configurations\n"
		"       sim --hostile N [--seed S]  a peer that says anything\n"
		"       sim --rules [--seed S]      each rule switched off must be caught\n"
		"       sim --states                the machine's state and message names\n"
		"       sim --transitions           its transitions: half, state, event, next "
		"state\n"
		"       --without RULE              with one rule switched off\n");
	return 2;
}

/* Each rule off: found by random schedules, else by the exhaustive search, which takes as long as
 * a million of them, else by more of them, else a failure. */
enum { RANDOM_FIRST = 200000, RANDOM_LAST = 800000 };
static int check_rules(uint64_t seed)
{
	int missed = 0;

	for (int r = 1; r < RULES; r++) {
		uint64_t at = 0;
		uint8_t fail = FAIL_NONE;
		const char *where = NULL;

		if (r == RULE_ENV_BASE)
			continue;
		cut_mutant = r;
		printf("%-16s %-74s ", rules[r].id, rules[r].plainer);
		fflush(stdout);
		if (search_random(seed, RANDOM_FIRST, true, &at, &fail))
			printf("%s, seed %llu\n", fail_name[fail], (unsigned long long)at);
		else if (search_exhaustive(true, &where, &fail))
			printf("%s, exhaustive \"%s\"\n", fail_name[fail], where);
		else if (search_random(seed + RANDOM_FIRST, RANDOM_LAST, true, &at, &fail))
			printf("%s, seed %llu\n", fail_name[fail], (unsigned long long)at);
		else
			missed++, printf("NOT CAUGHT\n");
	}
	cut_mutant = CUT_RULE_NONE;
	printf("%d not caught\n", missed);
	return missed != 0;
}

static int print_states(void)
{
	for (int i = 0; i < CUT_TX_STATES; i++)
		printf("TX_%s\n", cut_tx_state_name(i));
	for (int i = 0; i < CUT_RX_STATES; i++)
		printf("RX_%s\n", cut_rx_state_name(i));
	for (int i = CUT_MSG_ARM; i <= CUT_MSG_BACK; i++)
		printf("%s\n", cut_msg_name(i));
	return 0;
}

/* The rows of cut.def, as the machine has them. */
static const struct {
	bool tx;
	uint8_t state, event;
	unsigned to;		/* a bit of each state */
} rows[] = {
#define TX(state) (1u << CUT_TX_##state)
#define RX(state) (1u << CUT_RX_##state)
#define CUT_TX(state, event, handler, to, doc) { true, CUT_TX_##state, CUT_EV_##event, to },
#define CUT_RX(state, event, handler, to, doc) { false, CUT_RX_##state, CUT_EV_##event, to },
#include "../../shim/cut/cut.def"
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const char *state_name(bool tx, unsigned s)
{
	return tx ? cut_tx_state_name(s) : cut_rx_state_name(s);
}

static int print_transitions(void)
{
	for (size_t i = 0; i < ROWS; i++)
		for (unsigned to = 0; rows[i].to >> to; to++)
			if (rows[i].to >> to & 1)
				printf("%s %s %s %s\n", rows[i].tx ? "TX" : "RX",
				       state_name(rows[i].tx, rows[i].state),
				       cut_ev_name(rows[i].event), state_name(rows[i].tx, to));
	return 0;
}

/* Only a peer that says BACK before all is consumed brings it about. */
static bool needs_liar(size_t row)
{
	return !rows[row].tx && rows[row].state == CUT_RX_RING && rows[row].event == CUT_EV_CREDIT;
}

static bool has_led(size_t row, unsigned to)
{
	return (rows[row].tx ? seen_tx[rows[row].state][rows[row].event]
			     : seen_rx[rows[row].state][rows[row].event]) >> to & 1;
}

int table_unseen(void)
{
	int seen = 0, missed = 0;

	for (size_t i = 0; i < ROWS; i++)
		for (unsigned to = 0; rows[i].to >> to; to++) {
			if (!(rows[i].to >> to & 1))
				continue;
			if (has_led(i, to)) {
				seen++;
			} else if (!needs_liar(i)) {
				printf("never: %s %s %s %s\n", rows[i].tx ? "TX" : "RX",
				       state_name(rows[i].tx, rows[i].state),
				       cut_ev_name(rows[i].event), state_name(rows[i].tx, to));
				missed++;
			}
		}
	printf("transitions: %d of the table seen, %d not\n", seen, missed);
	return missed;
}

int main(int argc, char **argv)
{
	uint64_t seed = 1, count = 0;
	const char *mode = NULL, *where = NULL;
	bool verbose = false;
	uint8_t fail = FAIL_NONE;

	for (int i = 1; i < argc; i++) {
		const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;

		if (!strcmp(a, "-v")) {
			verbose = true;
		} else if (!strcmp(a, "--seed") && v) {
			seed = strtoull(v, NULL, 0), i++;
		} else if (!strcmp(a, "--without") && v) {
			for (int r = 1; r < RULES; r++)
				if (rules[r].id && !strcmp(rules[r].id, v))
					cut_mutant = r;
			if (!cut_mutant)
				return usage();
			i++;
		} else if ((!strcmp(a, "--random") || !strcmp(a, "--replay") ||
			    !strcmp(a, "--hostile")) &&
			   v) {
			mode = a;
			count = strtoull(v, NULL, 0), i++;
		} else if (!strcmp(a, "--exhaustive") || !strcmp(a, "--rules") ||
			   !strcmp(a, "--states") || !strcmp(a, "--transitions")) {
			mode = a;
		} else {
			return usage();
		}
	}
	if (!mode)
		return usage();
	if (!strcmp(mode, "--rules"))
		return check_rules(seed);
	if (!strcmp(mode, "--states"))
		return print_states();
	if (!strcmp(mode, "--transitions"))
		return print_transitions();
	if (!strcmp(mode, "--exhaustive"))
		return search_exhaustive(false, &where, &fail) != 0 || table_unseen() != 0;
	if (!strcmp(mode, "--hostile"))
		return search_hostile(seed, count);
	if (!strcmp(mode, "--replay")) {
		int rc = run_random(count, verbose, &fail);

		if (!verbose)
			printf("seed %llu: %s\n", (unsigned long long)count, fail_name[fail]);
		return rc;
	}
	if (search_random(seed, count, false, &seed, &fail))
		return 1;
	printf("%llu random schedules: clean\n", (unsigned long long)count);
	return 0;
}
