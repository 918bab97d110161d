/*
 * users.h - names and numbers of users, as a policy file has them.
 */
#ifndef RDMASHIM_USERS_H
#define RDMASHIM_USERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A number, or a name that /etc/passwd has (passwd(5)). False: neither. Any thread; errno may
 * change. */
bool user_parse(const char *s, size_t len, uid_t *ret);

#endif
