/*
 * peak.c - runs a command and writes to descriptor 4 how many KiB it held at most, itself and each
 * child that it waited for. Small itself, for a program begins with the peak of the one that
 * started it.
 *	peak CMD... 4>FILE
 */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct rusage use;
	int status = 0;
	pid_t pid;

	if (argc < 2)
		return 2;
	pid = fork();
	if (!pid) {
		execvp(argv[1], argv + 1);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &use) < 0)
		return 1;
	dprintf(4, "%ld\n", use.ru_maxrss);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
