/*
 * lies_file.h - the file in which a link's memory is: a thread of the peer's is inside write() with
 * memory that never comes, and so has the kernel's lock of the file (inode_lock()), for which
 * nobody can be woken. For peer.c only.
 */
#ifndef LIES_FILE_H
#define LIES_FILE_H

static void *writes_for_ever(void *arg)
{
	(void)!pwrite(*(int *)arg, locked_memory, 4096, 1 << 20);
	return NULL;
}

/* From now on the file is locked, as long as we live. */
static void lock_file(int file)
{
	static int fd;
	pthread_t t;

	fd = fcntl(file, F_DUPFD_CLOEXEC, 3);
	if (fd < 0 || pthread_create(&t, NULL, writes_for_ever, &fd))
		broken("pthread_create");
	nap(100);
}

/* Threads of the victim's that no signal wakes. */
static int victims_asleep(void)
{
	char path[300], state;
	struct dirent *e;
	int n = 0;
	DIR *d;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/task", victim);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof path, "/proc/%d/task/%s/stat", victim, e->d_name);
		f = fopen(path, "r");
		if (f && fscanf(f, "%*d %*s %c", &state) == 1)
			n += state == 'D';
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return n;
}

static void must_not_sleep(const char *what)
{
	for (int i = 0; i < 40; i++, nap(10))
		if (!victims_asleep())
			return;
	broken("%s: a thread of the victim's waits, which no signal wakes", what);
}

/* The pages of a slot that was refused are given back. */
static void locked_segment(void)
{
	struct ctl_msg m;
	struct peer h;
	int fd;

	memory_that_never_comes();
	become_other();
	get_tcp(&h);
	open_name(&h);
	if (!readable(h.name, 4000))
		broken("the victim does not connect");
	h.ctl = accept4(h.name, NULL, NULL, SOCK_CLOEXEC);
	if (hear(&h, &m, 3000) != 1 || m.type != CTL_HELLO)
		broken("no HELLO");
	if (segment_create(&h.a, 16, 1 << 24, 0, &fd) ||
	    say(&h, record(CTL_WELCOME, 0, 0, 0, 0), fd))
		broken("WELCOME");
	tell_bell(&h);
	lock_file(fd);
	if (!hear_type(&h, CTL_BIND, &m, 3000))
		broken("no BIND");
	say(&h, record(CTL_NOT_MINE, m.slot, 0, 0, 0), -1);
	nap(200);
	must_not_sleep("memory whose file is locked");
}

#endif
