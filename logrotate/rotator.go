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
)

const (
	// soonest is the least time between two looks at one log; stamps in names
	// have a second.
	soonest = time.Second
	// together is how many logs are rotated at the same time: each waits for the
	// runtime, and a container that hangs must not hold up the others.
	together = 8
	// reopenTimeout bounds one request to the runtime.
	reopenTimeout = 30 * time.Second
)

// Runtime is what a Rotator needs of the container runtime.
type Runtime interface {
	// RunningLogs lists the live logs of the running containers.
	RunningLogs(ctx context.Context) ([]pod.ContainerLog, error)
	// ReopenContainerLog makes the runtime close a container's log and open its
	// path anew.
	ReopenContainerLog(ctx context.Context, id string) error
}

// Config is what a Rotator is made of; Log and Registerer may be nil.
type Config struct {
	Runtime Runtime
	// MaxSize in bytes, from which on a log is rotated; negative for never.
	MaxSize int64
	// MaxFiles of one container, the live one included; at least 2.
	MaxFiles int
	// Interval between two looks at all logs.
	Interval time.Duration
	// Workers compress files at the same time.
	Workers    int
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Rotator rotates logs. Make it with New and Run it.
type Rotator struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	tidier  *tidier
	places  chan struct{} // of rotations, capacity together

	mu    sync.Mutex // guards everything below
	seen  map[string]*watched
	early chan struct{} // capacity 1: an early look was set
}

// watched is one running container's log.
type watched struct {
	log    pod.ContainerLog
	before sighting
	// early is when to look before the usual time; zero for not.
	early time.Time
	// busy: a rotation is under way.
	busy bool
	// said is the last error that was logged.
	said string
}

// New makes a Rotator; it starts nothing.
func New(cfg Config) *Rotator {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	m := newMetrics(cfg.Registerer)
	return &Rotator{
		cfg: cfg, log: cfg.Log, metrics: m, places: make(chan struct{}, together),
		tidier: newTidier(max(cfg.MaxFiles, minimumFiles)-1, cfg.Log, m),
		seen:   map[string]*watched{}, early: make(chan struct{}, 1),
	}
}

// Run looks at the logs until ctx ends, and returns when everything under way
// has ended. It is called once, when the runtime answers.
func (r *Rotator) Run(ctx context.Context) error {
	if r.cfg.MaxSize < 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	var running sync.WaitGroup
	defer running.Wait()
	for range max(r.cfg.Workers, 1) {
		running.Go(func() { r.tidier.run(ctx) })
	}
	tick := time.NewTicker(r.cfg.Interval)
	defer tick.Stop()
	r.lookAtAll(ctx, &running)
	for {
		var timer <-chan time.Time
		if at := r.nextEarly(); !at.IsZero() {
			timer = time.After(time.Until(at))
		}
		select {
		case <-tick.C:
			r.lookAtAll(ctx, &running)
		case <-timer:
			r.lookAtEarly(ctx, &running)
		case <-r.early:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lookAtAll asks the runtime what runs, and looks at each log.
func (r *Rotator) lookAtAll(ctx context.Context, running *sync.WaitGroup) {
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
			// As if it had begun to be written an interval ago: a flood is
			// taken for one at the first sight of it.
			w = &watched{before: sighting{at: time.Now().Add(-r.cfg.Interval)}}
			r.seen[l.ID] = w
		}
		w.log = l
		r.lookLocked(ctx, w, running)
	}
	for id, w := range r.seen {
		if !there[id] && !w.busy {
			delete(r.seen, id)
		}
	}
}

func (r *Rotator) nextEarly() (first time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.seen {
		if !w.busy && !w.early.IsZero() && (first.IsZero() || w.early.Before(first)) {
			first = w.early
		}
	}
	return first
}

// lookAtEarly looks at those logs whose early time has come.
func (r *Rotator) lookAtEarly(ctx context.Context, running *sync.WaitGroup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, w := range r.seen {
		if !w.early.IsZero() && !w.early.After(now) {
			r.lookLocked(ctx, w, running)
		}
	}
}

// lookLocked looks at one log's size, and has it rotated when it is too large, or
// opened when it is not there.
func (r *Rotator) lookLocked(ctx context.Context, w *watched, running *sync.WaitGroup) {
	if w.busy {
		return
	}
	info, err := os.Lstat(w.log.Path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file: something else put it there")
	}
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing: // somebody removed it: what is written goes nowhere
	case err != nil:
		w.early = time.Time{} // or its time, which is past, would come again at once
		r.complainLocked(w, fmt.Errorf("inspect the log: %w", err))
		return
	case info.Size() < r.cfg.MaxSize:
		now := sighting{info.Size(), time.Now()}
		w.early = nextLook(w.before, now, r.cfg.MaxSize, r.cfg.Interval, soonest)
		w.before = now
		return
	}
	w.busy, w.early = true, time.Time{}
	log := w.log
	running.Go(func() {
		select {
		case r.places <- struct{}{}:
			defer func() { <-r.places }()
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

// rotated notes how a rotation ended, and that this log may fill up again soon.
func (r *Rotator) rotated(w *watched, info fs.FileInfo, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.busy = false
	if err != nil {
		r.metrics.rotations.WithLabelValues("error").Inc()
		r.complainLocked(w, err)
		return
	}
	w.said = ""
	if info == nil {
		return
	}
	r.metrics.rotations.WithLabelValues("ok").Inc()
	w.before = sighting{at: time.Now()}
	w.early = w.before.at.Add(soonest) // what filled it may fill it again
	select {
	case r.early <- struct{}{}:
	default:
	}
}

// complainLocked logs an error of one container's log when it is news.
func (r *Rotator) complainLocked(w *watched, err error) {
	if text := err.Error(); text != w.said {
		w.said = text
		r.log.Warn("cannot rotate container log", "container", w.log.ID, "log", w.log.Path, "error", err)
	}
}

// rotate renames a log and has the runtime open it anew.
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
		return nil // rotated within this second already: the next look is soon
	}
	if err := d.rename(name, to); errors.Is(err, fs.ErrNotExist) {
		return nil // gone with its container
	} else if err != nil {
		return fmt.Errorf("rename the log: %w", err)
	}
	if err := r.reopen(ctx, l); err != nil {
		// So that the next try finds it. A log that is there again was opened
		// after all, and must not be lost.
		if linkErr := d.link(to, name); linkErr == nil {
			err = errors.Join(err, d.remove(to))
		} else if !errors.Is(linkErr, fs.ErrExist) {
			err = errors.Join(err, fmt.Errorf("undo the rename: %w", linkErr))
		}
		return err
	}
	r.tidier.rotated(l.Path, d, name)
	return nil
}

// restore has the runtime make a log again that somebody removed.
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
	// Not ended with podd: the log would be left without a file.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reopenTimeout)
	defer cancel()
	err := r.cfg.Runtime.ReopenContainerLog(ctx, l.ID)
	if errors.Is(err, pod.ErrNotFound) {
		return nil // it ended meanwhile
	}
	if err != nil {
		return fmt.Errorf("reopen the log: %w", err)
	}
	return nil
}
