// pause holds a pod's namespaces open and does nothing else. As PID 1 of a pod
// that shares its process namespace it also takes in orphans, so that none of
// them stays a zombie. It ends with code 0 on SIGTERM or SIGINT.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what) {
	fprintf(stderr, "pause: %s: %s\n", what, strerror(errno));
	_exit(1);
}

int main(int argc, char **argv) {
	(void)argc, (void)argv;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGCHLD);
	// Blocked and waited for, instead of handled: no handler, no race between a
	// signal and the call that sleeps. PID 1 would not get them unblocked either.
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0) die("sigprocmask");
	for (;;) {
		switch (sigwaitinfo(&set, NULL)) {
		case SIGTERM:
		case SIGINT:
			return 0;
		case SIGCHLD:
			// One SIGCHLD may stand for many children.
			while (waitpid(-1, NULL, WNOHANG) > 0) {
			}
			break;
		case -1:
			if (errno != EINTR) die("sigwaitinfo");
		}
	}
}
