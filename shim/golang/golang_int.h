/*
 * golang_int.h - what the files of this folder share; not for others.
 */
#ifndef RDMASHIM_GOLANG_INT_H
#define RDMASHIM_GOLANG_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/golang.h"

#define GOLANG_SITES   8
#define GOLANG_VERSION 24

/* ---- program.c ---- */

/* Bytes in memory that may be read: an address of the program's text or data. */
struct golang_part { const uint8_t *at; size_t len; };

struct golang_program {
	char version[GOLANG_VERSION];		/* "go1.19.8" */
	struct golang_part text;		/* its executable segment */
	uintptr_t low, high;			/* where the whole of it is mapped */
	unsigned sites;
	struct golang_site {
		const uint8_t *at;		/* where the site is */
		struct arch_go_site how;	/* how.at is of no use any more */
	} site[GOLANG_SITES];
};

/* The program of this process. 0; -ENOENT: no Go; -ENOTSUP: one that stays as it is, and *why. */
int golang_look(struct golang_program *ret, const char **why);

/* ---- table.c: as golang_look(), of .go.buildinfo; and of .gopclntab, .go.module (Go 1.26; or of
 * no length) and the text ---- */

int golang_build(const struct golang_part *info, char version[GOLANG_VERSION], const char **why);
int golang_functions(const struct golang_part *table, const struct golang_part *module,
		     const struct golang_part *text, struct golang_program *ret, const char **why);

/* ---- patch.c ---- */

/* All sites lead to stubs. 0 or -errno: none does, or all lead to their own system call. */
int golang_patch(const struct golang_program *p);

/* ---- call.c ---- */

bool golang_calls_prepare(void);	/* false: there is no room for what a thread needs */
void golang_calls_begin(void);		/* from now on they come here */

#endif
