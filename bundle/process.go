package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is a pidfd: it becomes readable when the process ends. That wakes its waiter at
// once, whether or not the process is podd's child.
type process struct {
	f     *os.File
	began time.Time
}

func watchProcess(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open: %w", err)
	}
	began, err := processBegan(pid)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	// Non-blocking, so that Go's poller takes it and no thread has to wait.
	return &process{f: os.NewFile(uintptr(fd), "pidfd "+strconv.Itoa(pid)), began: began}, nil
}

func (p *process) close() { p.f.Close() }

// kill sends SIGKILL. If the process has already ended, it does nothing.
func (p *process) kill() error {
	raw, err := p.f.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) }); err != nil {
		return err
	}
	if errors.Is(sent, unix.ESRCH) {
		return nil
	}
	return sent
}

// wait blocks until the process has ended (nil) or ctx is done (its cause).
func (p *process) wait(ctx context.Context) error {
	raw, err := p.f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { p.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		return err == nil && n > 0
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.Cause(ctx)
	}
	return err
}

// processBegan returns when a process was made, from field 22 of /proc/PID/stat (in clock
// ticks, 100 a second on every Linux, since boot).
func processBegan(pid int) (time.Time, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, err
	}
	// The name, in parentheses, may hold anything; the fields start after it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return time.Time{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("start time in /proc/%d/stat: %w", pid, err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Time{}, err
	}
	sinceBoot := time.Duration(ticks) * (time.Second / 100)
	return time.Now().Add(sinceBoot - time.Duration(now.Nano())), nil
}
