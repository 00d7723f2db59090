package logrotate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podd/internal/pod"
	"podd/internal/wake"
)

const (
	// minCheckInterval is the least time between two checks of a log: time stamps in names
	// are in seconds.
	minCheckInterval = time.Second
	// maxConcurrentRotations is how many logs are rotated concurrently: each rotation waits
	// for the runtime, and a container that hangs must not delay the others.
	maxConcurrentRotations = 8
	// reopenTimeout bounds one request to the runtime.
	reopenTimeout = 30 * time.Second
)

// Runtime is what a Rotator needs of the container runtime.
type Runtime interface {
	// RunningLogs lists the live logs of the running containers.
	RunningLogs(ctx context.Context) ([]pod.ContainerLog, error)
	// ReopenContainerLog makes the runtime close a container's log and open its path
	// again.
	ReopenContainerLog(ctx context.Context, id string) error
}

// Config configures a Rotator; Log and Registerer may be nil.
type Config struct {
	Runtime Runtime
	// MaxSize in bytes, at which a log is rotated; negative for never.
	MaxSize int64
	// MaxFiles of one container, the live one included; at least 2.
	MaxFiles int
	// Interval between two checks of all logs.
	Interval time.Duration
	// Workers is how many files are compressed concurrently.
	Workers    int
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Rotator rotates logs. Make it with New and Run it.
type Rotator struct {
	cfg           Config
	log           *slog.Logger
	metrics       *metrics
	cleaner       *cleaner
	rotationSlots chan struct{} // capacity maxConcurrentRotations

	mu         sync.Mutex // guards everything below
	seen       map[string]*watched
	earlyCheck wake.Signal // an early check was scheduled
}

// watched is one running container's log.
type watched struct {
	log        pod.ContainerLog
	lastSample sizeSample
	// earlyCheckAt is when to check before the interval is over; zero for not.
	earlyCheckAt time.Time
	// busy: a rotation is under way.
	busy bool
	// lastError is the last error that was logged.
	lastError string
}

// New returns a Rotator; it starts nothing.
func New(cfg Config) *Rotator {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	m := newMetrics(cfg.Registerer)
	return &Rotator{
		cfg: cfg, log: cfg.Log, metrics: m, rotationSlots: make(chan struct{}, maxConcurrentRotations),
		cleaner: newCleaner(max(cfg.MaxFiles, minimumFiles)-1, cfg.Log, m),
		seen:    map[string]*watched{}, earlyCheck: wake.New(),
	}
}

// Run checks the logs until ctx ends, and returns when all rotations under way have
// finished. It is called once, when the runtime is ready.
func (r *Rotator) Run(ctx context.Context) error {
	if r.cfg.MaxSize < 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	var running sync.WaitGroup
	defer running.Wait()
	for range max(r.cfg.Workers, 1) {
		running.Go(func() { r.cleaner.run(ctx) })
	}
	tick := time.NewTicker(r.cfg.Interval)
	defer tick.Stop()
	r.checkAll(ctx, &running)
	for {
		var timer <-chan time.Time
		if at := r.nextEarlyCheck(); !at.IsZero() {
			timer = time.After(time.Until(at))
		}
		select {
		case <-tick.C:
			r.checkAll(ctx, &running)
		case <-timer:
			r.checkDue(ctx, &running)
		case <-r.earlyCheck:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// checkAll checks the logs of all running containers.
func (r *Rotator) checkAll(ctx context.Context, running *sync.WaitGroup) {
	logs, err := r.cfg.Runtime.RunningLogs(ctx)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, pod.ErrUnavailable) {
			r.log.Warn("cannot check the sizes of container logs", "error", err)
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	there := make(map[string]bool, len(logs))
	for _, l := range logs {
		there[l.ID] = true
		w := r.seen[l.ID]
		if w == nil {
			// As if it had been empty an interval ago, so that a flood is noticed
			// at the first check.
			w = &watched{lastSample: sizeSample{at: time.Now().Add(-r.cfg.Interval)}}
			r.seen[l.ID] = w
		}
		w.log = l
		r.checkLocked(ctx, w, running)
	}
	for id, w := range r.seen {
		if !there[id] && !w.busy {
			delete(r.seen, id)
		}
	}
}

func (r *Rotator) nextEarlyCheck() (first time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.seen {
		if !w.busy && !w.earlyCheckAt.IsZero() && (first.IsZero() || w.earlyCheckAt.Before(first)) {
			first = w.earlyCheckAt
		}
	}
	return first
}

// checkDue checks the logs with an early check that is due.
func (r *Rotator) checkDue(ctx context.Context, running *sync.WaitGroup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, w := range r.seen {
		if !w.earlyCheckAt.IsZero() && !w.earlyCheckAt.After(now) {
			r.checkLocked(ctx, w, running)
		}
	}
}

// checkLocked has a log rotated if it is too large, or reopened if it is missing.
func (r *Rotator) checkLocked(ctx context.Context, w *watched, running *sync.WaitGroup) {
	if w.busy {
		return
	}
	info, err := os.Lstat(w.log.Path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file: something else put it there")
	}
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing: // it was removed, and what is written is lost
	case err != nil:
		w.earlyCheckAt = time.Time{} // otherwise it would be due again at once
		r.warnLocked(w, fmt.Errorf("inspect the log: %w", err))
		return
	case info.Size() < r.cfg.MaxSize:
		now := sizeSample{info.Size(), time.Now()}
		w.earlyCheckAt = nextCheck(w.lastSample, now, r.cfg.MaxSize, r.cfg.Interval, minCheckInterval)
		w.lastSample = now
		return
	}
	w.busy, w.earlyCheckAt = true, time.Time{}
	log := w.log
	running.Go(func() {
		select {
		case r.rotationSlots <- struct{}{}:
			defer func() { <-r.rotationSlots }()
		case <-ctx.Done():
			return
		}
		var err error
		if missing {
			err = r.restore(ctx, log)
		} else {
			err = r.rotate(ctx, log)
		}
		r.rotated(w, info, err)
	})
}

// rotated records the result of a rotation, and schedules an early check.
func (r *Rotator) rotated(w *watched, info fs.FileInfo, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.busy = false
	if err != nil {
		r.metrics.rotations.WithLabelValues("error").Inc()
		r.warnLocked(w, err)
		return
	}
	w.lastError = ""
	if info == nil {
		return
	}
	r.metrics.rotations.WithLabelValues("ok").Inc()
	w.lastSample = sizeSample{at: time.Now()}
	w.earlyCheckAt = w.lastSample.at.Add(minCheckInterval) // it may fill up again quickly
	r.earlyCheck.Notify()
}

// warnLocked logs an error of a container's log, unless it was the last one, too.
func (r *Rotator) warnLocked(w *watched, err error) {
	if text := err.Error(); text != w.lastError {
		w.lastError = text
		r.log.Warn("cannot rotate container log", "container", w.log.ID, "log", w.log.Path, "error", err)
	}
}

// rotate renames a log and makes the runtime reopen it.
func (r *Rotator) rotate(ctx context.Context, l pod.ContainerLog) error {
	d, name, err := openDir(l.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone with its container
	}
	if err != nil {
		return err
	}
	defer d.close()
	to := rotatedName(name, time.Now())
	if d.there(to) {
		return nil // already rotated within this second: the next check is soon
	}
	if err := d.rename(name, to); errors.Is(err, fs.ErrNotExist) {
		return nil // gone with its container
	} else if err != nil {
		return fmt.Errorf("rename the log: %w", err)
	}
	if err := r.reopen(ctx, l); err != nil {
		// Undo, for the next attempt. If the log exists again, it was reopened after
		// all, and must not be lost.
		if linkErr := d.link(to, name); linkErr == nil {
			err = errors.Join(err, d.remove(to))
		} else if !errors.Is(linkErr, fs.ErrExist) {
			err = errors.Join(err, fmt.Errorf("undo the rename: %w", linkErr))
		}
		return err
	}
	r.cleaner.rotated(l.Path, d, name)
	return nil
}

// restore makes the runtime reopen a log that was removed.
func (r *Rotator) restore(ctx context.Context, l pod.ContainerLog) error {
	d, _, err := openDir(l.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return r.reopen(ctx, l)
	}
	if err != nil {
		return err // the runtime would follow the symlink
	}
	d.close()
	return r.reopen(ctx, l)
}

func (r *Rotator) reopen(ctx context.Context, l pod.ContainerLog) error {
	// Not cancelled when podd stops: the log would have no file.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reopenTimeout)
	defer cancel()
	err := r.cfg.Runtime.ReopenContainerLog(ctx, l.ID)
	if errors.Is(err, pod.ErrNotFound) {
		return nil // it has exited meanwhile
	}
	if err != nil {
		return fmt.Errorf("reopen the log: %w", err)
	}
	return nil
}
