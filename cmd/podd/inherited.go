package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// A process inherits settings from whoever started podd: a shell with umask 077, cron, a
// supervisor that blocks signals. Programs in containers do not set these for themselves. The
// runtime and its containers would inherit them in turn, and a container of another user could
// not enter its own root directory. So a daemon first resets them, and its pods run the same
// way however it was started.

// umask applies to the node's directories and files, including the runtime's.
const umask = 0o022

// resetInherited resets this process before it creates or starts anything: umask, blocked
// signals, nice and resource limits. It leaves the working directory to chdirRoot, since paths
// of flags are relative to it. It does not return if it has to execute podd again.
func resetInherited() error {
	unix.Umask(umask)
	return errors.Join(raiseLimits(), resetThread())
}

// resetThread unblocks the signals and sets nice to 0. Both belong to a thread. The Go runtime
// gives the signal mask of its first thread to every thread that it creates and every program
// that it executes. So resetThread fixes one thread and executes podd again on it.
func resetThread() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	blocked, nice, err := threadState()
	if err != nil || blocked == (unix.Sigset_t{}) && nice == 0 {
		return err
	}
	if err := errors.Join(setNice(0), unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil)); err != nil {
		return err
	}
	// Do not loop forever: leave what cannot be fixed as it is.
	if blocked, nice, err = threadState(); err != nil || blocked != (unix.Sigset_t{}) || nice != 0 {
		return errors.Join(errors.New("unblock signals and set nice to 0: the kernel accepts it and does not do it"), err)
	}
	return fmt.Errorf("execute podd anew, with all signals unblocked: %w", unix.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// threadState returns the blocked signals and the nice value.
func threadState() (blocked unix.Sigset_t, nice int, err error) {
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, &blocked); err != nil {
		return blocked, 0, fmt.Errorf("read which signals are blocked: %w", err)
	}
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return blocked, 0, fmt.Errorf("read nice: %w", err)
	}
	return blocked, 20 - raw, nil // the system call never returns a negative number
}

func setNice(nice int) error {
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, nice); err != nil {
		return fmt.Errorf("set nice to %d: %w", nice, err)
	}
	return nil
}

// minLimits are the least limits that the runtime and its containers get: those of
// podd-runtime.service, and otherwise the kernel's own. Limits of core files are left to the
// administrator: they decide whether the machine keeps such files.
var minLimits = []struct {
	name       string
	resource   int
	soft, hard uint64
}{
	{"open files", unix.RLIMIT_NOFILE, 1 << 20, 1 << 20},
	{"processes", unix.RLIMIT_NPROC, unix.RLIM_INFINITY, unix.RLIM_INFINITY},
	{"file size", unix.RLIMIT_FSIZE, unix.RLIM_INFINITY, unix.RLIM_INFINITY},
	{"address space", unix.RLIMIT_AS, unix.RLIM_INFINITY, unix.RLIM_INFINITY},
	{"data", unix.RLIMIT_DATA, unix.RLIM_INFINITY, unix.RLIM_INFINITY},
	{"resident memory", unix.RLIMIT_RSS, unix.RLIM_INFINITY, unix.RLIM_INFINITY},
	{"processor time", unix.RLIMIT_CPU, unix.RLIM_INFINITY, unix.RLIM_INFINITY},
	{"file locks", unix.RLIMIT_LOCKS, unix.RLIM_INFINITY, unix.RLIM_INFINITY},
	{"locked memory", unix.RLIMIT_MEMLOCK, 8 << 20, 8 << 20},
	{"stack", unix.RLIMIT_STACK, 8 << 20, unix.RLIM_INFINITY},
}

// raiseLimits raises limits that are too low. It lowers none.
func raiseLimits() error {
	var errs []error
	for _, least := range minLimits {
		var now unix.Rlimit
		// Not Getrlimit: for open files it returns the Go runtime's own raised limit.
		if err := unix.Prlimit(0, least.resource, nil, &now); err != nil {
			errs = append(errs, fmt.Errorf("read the limit of %s: %w", least.name, err))
			continue
		}
		soft, hard := least.soft, least.hard
		if least.resource == unix.RLIMIT_NOFILE {
			most := maxOpenFiles(hard)
			soft, hard = min(soft, most), min(hard, most)
		}
		want := unix.Rlimit{Cur: max(now.Cur, soft), Max: max(now.Max, hard)}
		// Set it even if nothing seems to change: the Go runtime has raised its own limit of
		// open files, and would give children the previous one.
		if want == now && least.resource != unix.RLIMIT_NOFILE {
			continue
		}
		err := unix.Setrlimit(least.resource, &want)
		if errors.Is(err, unix.EPERM) { // raise it as far as this machine permits
			err = errors.Join(err, unix.Setrlimit(least.resource, &unix.Rlimit{Cur: min(want.Cur, now.Max), Max: now.Max}))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("raise the limit of %s from %d: %w", least.name, now.Max, err))
		}
	}
	return errors.Join(errs...)
}

// maxOpenFiles returns the kernel's bound of that limit, or otherwise if it is unknown.
func maxOpenFiles(otherwise uint64) uint64 {
	text, err := os.ReadFile("/proc/sys/fs/nr_open")
	if err != nil {
		return otherwise
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// restoreChildHangups makes children of podd end at a SIGHUP again if podd itself ignores it,
// as under nohup. Containers would inherit that. podd runtime keeps ignoring it, because
// containerd takes its place.
func restoreChildHangups() {
	if signal.Ignored(unix.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), unix.SIGHUP) // nobody receives, so podd still ignores it
	}
}

// chdirRoot leaves the working directory, so that it can be unmounted.
func chdirRoot() error { return os.Chdir("/") }

// logInherited logs what could not be reset. The daemon runs on.
func logInherited(log *slog.Logger, err error) {
	switch {
	case err == nil:
	case errors.Is(err, unix.EPERM):
		log.Info("this machine does not permit podd to reset all that it inherited, and containers inherit it", "error", err)
	default:
		log.Warn("cannot reset what podd inherited: containers may inherit it", "error", err)
	}
}
