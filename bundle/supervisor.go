package bundle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"podd/internal/wake"
)

const (
	// healthyAfter is how long a runtime must have run before its end counts as the first
	// again.
	healthyAfter = time.Minute
	// slowStart is when a slow start gets a line in the log: containerd reads all its
	// containers first, which can take half a minute.
	slowStart = 20 * time.Second
)

// restartBackoff is the time until a runtime that has ended is started again.
var restartBackoff = wake.Backoff{Initial: 100 * time.Millisecond, Max: 10 * time.Second}

// SupervisorConfig configures a Supervisor. Socket, Command and LogFile must be set.
type SupervisorConfig struct {
	// Socket is where a running runtime answers; see Socket.
	Socket string
	// Command starts a runtime: podd's own path, "runtime" and its flags.
	Command []string
	// LogFile takes the runtime's output; see LogFile. When it is larger than 10 MiB, it is
	// started anew, and the old one is kept as LogFile.1. This is checked at every start
	// and once a minute, so both together stay below 20 MiB and a minute's worth.
	LogFile string
	Log     *slog.Logger
	// Registerer may be nil.
	Registerer prometheus.Registerer
	// OnReady, if set, is called from Run each time a runtime has become ready; it must not
	// block. began is when that process was made: no call of an earlier runtime is still in
	// progress.
	OnReady func(pid int, began time.Time)
	// OnDown, if set, is called from Run each time a runtime has ended or did not
	// start, with the reason, before the next is tried; it must not block.
	OnDown func(error)
}

// Supervisor keeps a container runtime running, as a process that outlives
// podd. Make it with NewSupervisor, then call Run once.
type Supervisor struct {
	cfg     SupervisorConfig
	log     *slog.Logger
	metrics *metrics

	mu sync.Mutex
	// down says why there is no runtime; nil while there is one.
	down error
}

// NewSupervisor returns a Supervisor. It starts nothing.
func NewSupervisor(cfg SupervisorConfig) *Supervisor {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Supervisor{cfg: cfg, log: log, metrics: newMetrics(cfg.Registerer), down: errors.New("the container runtime is starting")}
}

// Healthy returns nil while a runtime runs that has reported ready, and otherwise a
// sentence that says why not. Only CRI can tell whether it also answers.
func (s *Supervisor) Healthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// Run adopts the runtime that answers on the socket or starts one, and does so again
// whenever it ends, with a back-off from 100 ms to 10 s. It blocks until ctx is done and
// then leaves the runtime running: podd's shutdown does not concern its pods. The error is
// ctx's cause.
func (s *Supervisor) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.limitLogSize(ctx) })
	delay := time.Duration(0)
	for {
		began := time.Now()
		err := s.superviseOnce(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		delay = nextDelay(delay, time.Since(began))
		s.setDown(err)
		s.metrics.restarts.Inc()
		s.log.Warn("container runtime is down", "error", err, "restart_in", delay)
		if !wake.Sleep(ctx, delay) {
			return context.Cause(ctx)
		}
	}
}

// nextDelay doubles the delay, and starts over after a runtime that ran for a while.
func nextDelay(last, ran time.Duration) time.Duration {
	if ran >= healthyAfter {
		last = 0
	}
	return restartBackoff.Next(last)
}

// superviseOnce watches one runtime from its start, or its adoption, to its end, and returns why it
// ended. It returns early, with any error, when ctx is done.
func (s *Supervisor) superviseOnce(ctx context.Context) error {
	pid, err := ListenerPID(s.cfg.Socket)
	if err != nil {
		return s.runChild(ctx)
	}
	if pid == 0 {
		// Its process is in another PID namespace: whoever started it there restarts it,
		// and only CRI's own reconnects are left to do.
		s.setReady(0, time.Time{})
		s.log.Info("adopted a container runtime of another PID namespace", "socket", s.cfg.Socket)
		<-ctx.Done()
		return ctx.Err()
	}
	p, err := watchProcess(pid)
	if err != nil {
		return fmt.Errorf("watch the container runtime (process %d): %w", pid, err)
	}
	defer p.close()
	s.setReady(pid, p.began)
	s.log.Info("adopted the running container runtime", "pid", pid, "socket", s.cfg.Socket)
	if err := p.wait(ctx); err != nil {
		return err
	}
	return fmt.Errorf("the container runtime (process %d) ended; its log is where it was started", pid)
}

func (s *Supervisor) setReady(pid int, began time.Time) {
	s.mu.Lock()
	s.down = nil
	s.mu.Unlock()
	s.metrics.up.Set(1)
	if s.cfg.OnReady != nil {
		s.cfg.OnReady(pid, began)
	}
}

func (s *Supervisor) setDown(err error) {
	s.mu.Lock()
	s.down = err
	s.mu.Unlock()
	s.metrics.up.Set(0)
	if s.cfg.OnDown != nil {
		s.cfg.OnDown(err)
	}
}

// ListenerPID returns the process that listens on a unix socket; 0 if it cannot be
// seen from this PID namespace. An error means that nobody listens.
func ListenerPID(path string) (int, error) {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, &fs.PathError{Op: "ask who listens on", Path: path, Err: credErr}
	}
	return int(cred.Pid), nil
}
