/*
 * stat_int.h - where the parts of a counter file are (stat.h), for those who write one.
 */
#ifndef RDMASHIM_STAT_INT_H
#define RDMASHIM_STAT_INT_H

#include "stat.h"

#define STAT_CALLS_AT	(sizeof(struct stat_header) + STAT_ROWS * sizeof(struct stat_row))
#define STAT_SITES_AT	(STAT_CALLS_AT + sizeof(struct stat_calls))
#define STAT_HISTORY_AT	(STAT_SITES_AT + STAT_SITES * sizeof(struct stat_call_site))
#define STAT_MOVES_AT	(STAT_HISTORY_AT + STAT_ROWS * sizeof(struct stat_history))
#define STAT_LINKS_AT	(STAT_MOVES_AT + sizeof(struct stat_move_calls) + \
			 STAT_ROWS * sizeof(struct stat_moves))
#define STAT_FILE_SIZE	(STAT_LINKS_AT + sizeof(struct stat_links))

/* Files of sums of processes that have ended, by program: STAT_ENDED and a number. pid 0,
 * start_time how many; rows, sites and links are empty. */
#define STAT_ENDED "ended."

/* ---- stat_file.c: making it; 0 or -errno ---- */
/* All but the magic: who we are. */
void stat_fill_header(struct stat_header *h, const char *program, const char *policy_file);
/* A file of its own for `me`, mapped; within fd_hold(). */
int stat_map_file(const struct stat_header *me, struct stat_header **ret);
int stat_map_anonymous(struct stat_header **ret);	/* the same that nobody can read */
/* Makes the pages of [from, to) exist; false: they cannot be written. */
bool stat_populate(struct stat_header *h, size_t from, size_t to);

/* ---- stat_rows.c: which row is free, and what memory rows have ---- */
/* What lies in the file for each row. All but itself it can do without. */
enum { ROWS_ROW, ROWS_HISTORY, ROWS_MOVES, ROWS_PARTS };
/* A free row, whose memory is there. Its index or -1. */
int stat_rows_take(struct stat_header *h);
void stat_rows_give(uint32_t i);
/* Is that part of a taken row there? */
bool stat_rows_have(unsigned part, uint32_t i);
void stat_rows_reset(void);	/* another file, or none: all are free and have nothing */

/* ---- stat_ended.c; within fd_hold(), where RLIMIT_FSIZE permits a counter file ---- */
/* The user's own directory, just opened: if there are many files of ended processes, some are added
 * up. `self`: of the process's own file, which is there already. */
void stat_sweep(int dir, const struct stat_header *self);
/* The file of the process's own number that another one has left, which began at another time. */
void stat_sweep_number(int dir, const struct stat_header *self);

#endif
