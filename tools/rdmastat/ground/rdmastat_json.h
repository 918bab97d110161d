/*
 * rdmastat_json.h - the views as JSON. docs/json.md describes the fields; they are an interface:
 * add, don't rename.
 */
#ifndef RDMASHIM_RDMASTAT_JSON_H
#define RDMASHIM_RDMASTAT_JSON_H

#include <json-c/json.h>

#include "ground/rdmastat.h"

#define JSON_SCHEMA 1		/* raised when a field changes its meaning or goes */

json_object *json_root(void);	/* with "schema" */
json_object *json_num(uint64_t v);
json_object *json_share(double v);	/* null below 0 */
json_object *json_str(const char *s);	/* what is not printable ASCII becomes ? */
/* key: a constant, and not in o yet */
void json_add(json_object *o, const char *key, json_object *v);
void json_print(const struct request *r, json_object *o);	/* and frees it */

/* A document with lists of any length, of which each row is printed and forgotten; one_line: -w. */
struct json_rows { FILE *f; bool one_line, begun, any; };
void json_rows_begin(struct json_rows *w, const char *key);
void json_rows_add(struct json_rows *w, json_object *o);	/* and frees it */
void json_rows_end(struct json_rows *w);
/* Behind a list; frees o. */
void json_rows_value(struct json_rows *w, const char *key, json_object *o);
void json_rows_done(struct json_rows *w);
void json_rows_processes(struct json_rows *w, const struct stat_list *l);	/* "processes" */
void json_rows_total(struct json_rows *w, const struct stat_list *l);

json_object *json_connection(const struct conn_ref *ref);

int json_processes(const struct request *r, const struct stat_list *l);
void json_connections(const struct request *r, const struct conn_ref *ref, size_t n);
void json_links(struct json_rows *w, const struct link_row *row, size_t n);	/* "links" */

#endif
