/*
 * The only program in most of the images of the real-kernel tests, and the pause
 * program of the sandboxes: it does nothing until it is told to end, with
 * status 0. In C, since many of them are started under emulation, which makes
 * the start of a Go program dear.
 *
 *	pod [--linger=SECONDS] [...]
 *
 * --linger is how long it goes on after SIGTERM. Other arguments are of no
 * interest here: the tests find the process by --pod=NAMESPACE/NAME.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static const char option[] = "--linger=";
	unsigned int linger = 0;
	sigset_t ends;
	int received;

	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], option, sizeof(option) - 1))
			linger = (unsigned int)strtoul(argv[i] + sizeof(option) - 1, NULL, 10);

	/* As process 1 of a sandbox it inherits orphans: the kernel reaps them. */
	signal(SIGCHLD, SIG_IGN);
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	if (sigwait(&ends, &received))
		return 1;
	while (linger)
		linger = sleep(linger);
	return 0;
}
