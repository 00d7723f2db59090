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

// saver stores the sets that it is given, in a goroutine of its own: a disk must not delay a
// pod.
type saver struct {
	stored podstore.Store
	log    *slog.Logger
	// pending holds the newest whole set, by UID; capacity 1. A set is not modified once sent.
	pending chan map[pod.UID]*pod.Desired
}

func newSaver(s podstore.Store, log *slog.Logger) *saver {
	return &saver{stored: s, log: log, pending: make(chan map[pod.UID]*pod.Desired, 1)}
}

// enqueue replaces the set to store. It never blocks. Only one goroutine calls it.
func (k *saver) enqueue(set map[pod.UID]*pod.Desired) {
	select {
	case <-k.pending: // a set that was not stored yet
	default:
	}
	k.pending <- set
}

// run stores sets until ctx ends.
func (k *saver) run(ctx context.Context) {
	has := map[pod.UID]*pod.Desired{} // the pods that this podd has written
	var retry <-chan time.Time
	var set map[pod.UID]*pod.Desired
	var failure logonce.Failure
	for {
		select {
		case <-ctx.Done():
			return
		case set = <-k.pending:
		case <-retry:
		}
		retry = nil
		err := k.save(set, has)
		if failure.IsNew(err) {
			k.log.Warn("cannot store the pods of the cluster: after a reboot without the apiserver they would not run, or would run as they were before", "error", err)
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
func (k *saver) save(set, has map[pod.UID]*pod.Desired) error {
	var errs []error
	for uid, d := range set {
		if has[uid] == d {
			continue
		}
		if err := k.stored.Write(podstore.Entry{Origin: d.Origin, Pod: d.Pod}); err != nil {
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
	return errors.Join(append(errs, k.stored.Retain(func(uid pod.UID) bool { return set[uid] != nil }))...)
}
