/*
 * completion.c - any words as what a user has typed before he presses the tab key, in a bash
 * that has our completion: nothing of them may be run, bash may not complain. The words are
 * separated by NULs; the first is the program; bytes from 128 on are short for what matters. The
 * fuzzer does not see where bash goes: instead it is told which two of these the last two words
 * begin with, so that it tries all of them. The bash is one process, in a directory whose names
 * of files are words to be run, too; `rdmastat` and `rdmarun` are functions in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define WORDS_MAX 8
#define BYTES_MAX 1000

static uint8_t begins[64][64] __attribute__((section("__libfuzzer_extra_counters")));

static const char *const known[64] = {
	NULL, "rdmastat", "rdmarun", "overview", "conn", "top", "why", "watch", "prometheus",
	"record", "report", "doctor", "policy", "check", "explain", "set", "unset", "import",
	"mode", "spin", "-o", "--columns", "-s", "--sort", "-p", "--pid", "-f", "--file", "-O",
	"--svg", "--show", "--color", "-l", "-n", "--policy", "--", "-", ":", "42", "pid",
		"program", ",",
	"$(canary)", "`canary`", ";canary;", "${x:-$(canary)}", "a[$(canary)]", "<(canary)",
	"\"$(canary)\"", "'`canary`'", "'", "\"", "\\", "*", "~", "|canary",
};

__asm__(".section .rodata\n"
	"ours: .incbin \"tools/completion/rdmastat.bash\"\n .byte 0\n"
	".text\n");
extern const char ours[];

/* A round reads a count and the words, and says "done" on descriptor 9. */
static const char script[] =
	"exec 9>&1 2>&1; PATH=/usr/bin:/bin LC_ALL=C\n"
	"d=$(mktemp -d) && cd \"$d\" || exit 1; trap 'rm -rf \"$d\"' EXIT\n"
	"touch -- '$(canary)' '`canary`' ';canary;' 'a b' \"it's\" -x '*'\n"
	"canary() { echo canary >&9; }\n"
	"rdmastat() { case $* in\n"
	"	*'-o pid'*) echo ' PID'; echo ' 17'; echo '42 $(canary)' ;;\n"
	"	*'-o help'*) echo 'pid  the process'; echo 'program  its name' ;;\n"
	"	*keys*) echo 'key value'; echo 'spin 1us' ;;\n"
	"	*--help*) echo '  -j, --json  print'; echo '      --listen PORT  x' ;;\n"
	"	esac; }\n"
	"rdmarun() { rdmastat \"$@\"; }\n"
	"eval \"$1\"\n"
	"while read -r -d '' count; do\n"
	"	COMP_WORDS=()\n"
	"	while ((count--)); do IFS= read -r -d '' w; COMP_WORDS+=(\"$w\"); done\n"
	"	COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
	"	COMP_LINE=\"${COMP_WORDS[*]}\" COMP_POINT=${#COMP_LINE}\n"
	"	if [[ ${COMP_WORDS[0]} == *run* ]]; then _rdmarun; else _rdmastat; fi >&9\n"
	"	echo done >&9\n"
	"done\n";

static int to = -1, from;

static void start(void)
{
	int in[2], out[2];
	pid_t pid;

	signal(SIGPIPE, SIG_IGN);
	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
		abort();
	pid = fork();
	if (pid < 0)
		abort();
	if (!pid) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		execl("/bin/bash", "bash", "--norc", "-c", script, "bash", ours, NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	to = in[1];
	from = out[0];
}

static void ask(const char *s, size_t n)
{
	ssize_t w;

	for (; n; s += w, n -= (size_t)w) {
		w = write(to, s, n);
		if (w < 0 && errno == EINTR)
			w = 0;
		else if (w <= 0)
			abort();
	}
}

static void answered(void)
{
	char got[4096];
	size_t n = 0;
	ssize_t r;

	while (n < 5 || memcmp(got + n - 5, "done\n", 5)) {
		r = n < sizeof(got) - 1 ? read(from, got + n, sizeof(got) - 1 - n) : 0;
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			break;
		n += (size_t)r;
	}
	if (n == 5 && !memcmp(got, "done\n", 5))
		return;
	fprintf(stderr, "bash says: %.*s\n", (int)n, got);
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char words[BYTES_MAX + 32], count[16];
	size_t len = 0, nwords = 1, before = 0, word = 0;

	for (size_t i = 0; i < n && len < BYTES_MAX && nwords < WORDS_MAX; i++)
		if (data[i] & 0x80 && known[data[i] & 63]) {
			if (!len || !words[len - 1])
				word = data[i] & 63;
			len += (size_t)sprintf(words + len, "%s", known[data[i] & 63]);
		} else {
			words[len++] = (char)data[i];
			if (!data[i]) {
				nwords++;
				before = word;
				word = 0;
			}
		}
	begins[before][word] = 1;
	words[len++] = '\0';
	if (to < 0)
		start();
	ask(count, (size_t)sprintf(count, "%zu", nwords) + 1);
	ask(words, len);
	answered();
	return 0;
}
