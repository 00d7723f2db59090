package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"podd/internal/logonce"
	"podd/internal/pod"
	"podd/internal/podstore"
	"podd/internal/wake"
)

const (
	// savingPause is the time between two saves: a burst of changes is saved once.
	savingPause = time.Second
	// savingRetry is how soon a failed save, on a full disk perhaps, is retried.
	savingRetry = time.Minute
)

// saver writes the pods that it is given to disk, in its own goroutine: a slow disk must not
// delay a pod.
type saver struct {
	stored podstore.Store
	log    *slog.Logger
	// pending holds the newest whole set, by UID; capacity 1. A set is not modified once sent.
	pending chan map[pod.UID]*pod.Desired
}

func newSaver(s podstore.Store, log *slog.Logger) *saver {
	return &saver{stored: s, log: log, pending: make(chan map[pod.UID]*pod.Desired, 1)}
}

// enqueue replaces the set that is to be saved. It never blocks. Only one goroutine calls it.
func (s *saver) enqueue(set map[pod.UID]*pod.Desired) {
	select {
	case <-s.pending: // a set that was not saved yet
	default:
	}
	s.pending <- set
}

// run saves sets until ctx ends.
func (s *saver) run(ctx context.Context) {
	has := map[pod.UID]*pod.Desired{} // the pods that this podd has written
	var retry <-chan time.Time
	var set map[pod.UID]*pod.Desired
	var failure logonce.Failure
	for {
		select {
		case <-ctx.Done():
			return
		case set = <-s.pending:
		case <-retry:
		}
		retry = nil
		err := s.save(set, has)
		if failure.IsNew(err) {
			s.log.Warn("cannot store the pods of the cluster: after a reboot without the apiserver they would not run, or would run as they were before", "error", err)
		}
		if err != nil {
			retry = time.After(savingRetry)
		}
		if !wake.Sleep(ctx, savingPause) {
			return
		}
	}
}

// save writes the pods that differ from has, and removes the files of all others.
func (s *saver) save(set, has map[pod.UID]*pod.Desired) error {
	var errs []error
	for uid, d := range set {
		if has[uid] == d {
			continue
		}
		if err := s.stored.Write(podstore.Entry{Origin: d.Origin, Pod: d.Pod}); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.Name(), err))
			continue
		}
		has[uid] = d
	}
	for uid := range has {
		if set[uid] == nil {
			delete(has, uid)
		}
	}
	// A pod that could not be written keeps its old file.
	return errors.Join(append(errs, s.stored.Retain(func(uid pod.UID) bool { return set[uid] != nil }))...)
}
