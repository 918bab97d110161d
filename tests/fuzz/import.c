/*
 * import.c - any bytes as a libvma.conf. Whatever stands in it, what is printed is a policy.
 *
 * LINK: tools/rdmastat/commands/rdmastat_import.c tools/rdmastat/commands/rdmastat_grow.c
 * LINK: tools/rdmastat/ground/rdmastat_text.c
 */
#include "tool.h"
#include "../../policy/conf.h"

#define RULES_MAX 100		/* below the limits of a policy */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char word[] = "import", from[] = "-", *argv[] = { word, from, NULL };
	struct policy_error err;
	struct policy *p = NULL;
	size_t lines = 0;
	int rc;

	for (size_t i = 0; i < n; i++)
		lines += data[i] == '\n';
	streams_open(data, n);
	rc = policy_import(2, argv);
	streams_close();
	printable(said, said_len);
	if (rc == EXIT_OK && policy_parse(said, said_len, "fuzz", &p, &err))
		abort();
	if (rc != EXIT_OK && (said_len || lines < RULES_MAX))
		abort();	/* a line that it took was none */
	policy_free(p);
	free(said);
	return 0;
}
