/*
 * version.c - the one object that is built anew when the commit changes: see $(B)/.version in
 * the Makefile.
 */
#include "version.h"

#ifndef RDMASHIM_VERSION
#define RDMASHIM_VERSION "unknown"
#endif

const char rdmashim_version[VERSION_LEN] = RDMASHIM_VERSION;
_Static_assert(sizeof(RDMASHIM_VERSION) <= VERSION_LEN, "the version is too long");
