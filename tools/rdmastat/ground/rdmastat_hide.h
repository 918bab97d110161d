/*
 * rdmastat_hide.h - addresses and names of hosts in a text that is passed on become numbers, the
 * same one each time, so that what belongs together is still seen. In doubt a word is hidden:
 * what looks like an address within a longer word, and what has the shape of a hardware address.
 */
#ifndef RDMASHIM_RDMASTAT_HIDE_H
#define RDMASHIM_RDMASTAT_HIDE_H

#include <stddef.h>
#include <stdio.h>

/* own: this host's name, which is hidden wherever it is a word of its own; "": none. 0 or
 * -ENOMEM. */
int hide_start(const char *own);
void hide_end(void);
/* Writes the line with "address-N" and "host-N" for these. Kept are the addresses that all hosts
 * have (127.*, ::1 and those of no host) and "localhost". */
void hide_line(FILE *to, const char *line);

#endif
