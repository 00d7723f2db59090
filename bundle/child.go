package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxLog is the size at which the log is started anew.
	maxLog = 10 << 20
	// logCheck is how often its size is checked while the runtime runs.
	logCheck = time.Minute
)

// runChild starts the runtime, waits until it says that it is ready and then until it ends,
// and returns why it ended.
func (s *Supervisor) runChild(ctx context.Context) error {
	log, err := openLog(s.cfg.LogFile)
	if err != nil {
		return fmt.Errorf("open the container runtime's log: %w", err)
	}
	defer log.Close()
	start, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	notify, err := listenNotify(notifySocket(s.cfg.Socket))
	if err != nil {
		return fmt.Errorf("listen for the container runtime's readiness: %w", err)
	}
	defer notify.close()

	cmd := exec.Command(s.cfg.Command[0], s.cfg.Command[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.Env = childEnv(os.Environ(), notify.path)
	// A session of its own: a Ctrl-C meant for podd is not meant for the pods.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the container runtime: %w", err)
	}
	p, err := watchProcess(cmd.Process.Pid)
	if err != nil {
		return errors.Join(fmt.Errorf("watch the container runtime: %w", err), cmd.Process.Kill(), cmd.Wait())
	}
	defer p.close()
	s.log.Info("container runtime started", "pid", cmd.Process.Pid, "log", s.cfg.LogFile)

	awaitReady, stopAwait := context.WithCancel(ctx)
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		s.watchReadiness(awaitReady, notify, cmd.Process.Pid, p.began)
	}()
	err = p.wait(ctx)
	stopAwait()
	<-ready
	if err != nil { // ctx is done: the runtime lives on, without a parent to wait for it
		return errors.Join(err, cmd.Process.Release())
	}
	return exitError(cmd.Wait(), lastLine(s.cfg.LogFile, start))
}

// childEnv is the environment of "podd runtime": podd's, without the variables that systemd
// meant for podd alone. Exec decides which of them reach containerd.
func childEnv(env []string, notify string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES":
			return true
		}
		return false
	})
	return append(env, "NOTIFY_SOCKET="+notify)
}

// exitError turns an exit status and the last line of the log into a sentence.
func exitError(err error, last string) error {
	how := "exited unexpectedly"
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		how = "ended: " + exit.String()
	} else if err != nil {
		how = "ended: " + err.Error()
	}
	if last != "" {
		how += "; its last output: " + last
	}
	return errors.New("the container runtime " + how)
}

// openLog opens the log for appending. It first puts aside a file that has grown too large.
func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return nil, err
	}
	if err := rotateLog(path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
}

// limitLogSize keeps the log of a running runtime within bounds, even if an earlier podd
// started the runtime. At its level, warn, containerd writes a few lines a day, but a fault
// that repeats may write for months. It blocks until ctx is done.
func (s *Supervisor) limitLogSize(ctx context.Context) {
	tick := time.NewTicker(logCheck)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := rotateLog(s.cfg.LogFile); err != nil {
			s.log.Warn("cannot rotate the container runtime's log: it keeps growing", "error", err)
		}
	}
}

// rotateLog copies a log that is too large and empties it. It does not rename it:
// containerd and the shims hold it open for appending, and continue at the start of an
// emptied file. A line written between both steps is lost.
func rotateLog(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (info.Size() <= maxLog || !info.Mode().IsRegular()) {
		return nil
	}
	if err != nil {
		return err
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	// If a file is far too large, only its end is worth the space.
	if _, err := from.Seek(max(0, info.Size()-maxLog), io.SeekStart); err != nil {
		return err
	}
	to, err := os.OpenFile(path+".1", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil && !errors.Is(err, unix.ENOSPC) { // then the space counts for more
		return err
	}
	return os.Truncate(path, 0)
}

// lastLine returns the last line written since start, at most 1 KiB of it.
func lastLine(path string, start int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || end <= start {
		return ""
	}
	buf := make([]byte, min(end-start, 8<<10))
	n, err := f.ReadAt(buf, end-int64(len(buf)))
	if err != nil && n == 0 {
		return ""
	}
	said := bytes.TrimSpace(buf[:n])
	line := said[bytes.LastIndexByte(said, '\n')+1:]
	return string(line[:min(len(line), 1<<10)])
}
