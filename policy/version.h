/*
 * version.h - which source this is.
 */
#ifndef RDMASHIM_VERSION_H
#define RDMASHIM_VERSION_H

/* "0.2 (92a8bd2e01)": the file VERSION, and what git says of the tree that it was built from,
 * with -dirty if that was changed; without git the version alone. Printable ASCII, less than
 * VERSION_LEN. */
#define VERSION_LEN 40
extern const char rdmashim_version[VERSION_LEN];

#endif
