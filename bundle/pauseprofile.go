package bundle

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"podd/internal/atomicfile"
)

// pauseCalls are the system calls of the pause process, on every architecture. An
// architecture ignores the names that it lacks.
var pauseCalls = [][]string{
	{ // runc, from loading the profile to executing the pause process
		"close", "close_range", "execve", "fcntl", "fstat", "fstatfs", "getdents64", "newfstatat", "openat", "openat2", "read", "readlinkat", "statx", "write",
	},
	{ // the Go and C runtimes of runc, with threads, signals and a collector that never rest
		"clock_gettime", "clock_nanosleep", "clone", "clone3", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd2", "exit", "futex", "getpid",
		"gettid", "gettimeofday", "madvise", "mincore", "mmap", "munmap", "nanosleep", "pipe2", "prctl", "restart_syscall", "rt_sigreturn", "sched_getaffinity",
		"sched_yield", "sigaltstack", "tgkill", "timer_create", "timer_delete", "timer_settime",
	},
	{ // the start of a static C program
		"arch_prctl", "brk", "getrandom", "mprotect", "prlimit64", "readlink", "rseq", "set_robust_list", "set_tid_address", "uname",
	},
	{ // its purpose: waiting for signals and children; upstream's pause, too
		"exit_group", "pause", "ppoll", "rt_sigaction", "rt_sigprocmask", "rt_sigtimedwait", "wait4", "waitid",
	},
}

// WritePauseProfile writes the seccomp profile of the pause process into the state
// directory, and returns its path. The runtime's default profile allows what any program
// may need, 383 system calls on three architectures on amd64. Compiling it for each sandbox
// was a fifth of the processor time of 50 starting pods (libseccomp 2.5). The pause process
// needs few calls, so this profile is both narrower and faster to load. Everything else
// fails with EPERM, as it does with the default profile.
func WritePauseProfile(stateDir string) (path string, err error) {
	text, err := json.Marshal(pauseProfile())
	if err != nil {
		return "", fmt.Errorf("make the seccomp profile of the pause process: %w", err)
	}
	path = pauseProfileFile(stateDir)
	if err := atomicfile.Write(path, append(text, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("write the seccomp profile of the pause process: %w", err)
	}
	return path, nil
}

func pauseProfileFile(stateDir string) string { return filepath.Join(stateDir, "pause-seccomp.json") }

// pauseProfile names no architecture, which means the machine's own only.
func pauseProfile() specs.LinuxSeccomp {
	p := specs.LinuxSeccomp{DefaultAction: specs.ActErrno}
	for _, names := range pauseCalls {
		p.Syscalls = append(p.Syscalls, specs.LinuxSyscall{Names: names, Action: specs.ActAllow})
	}
	return p
}
