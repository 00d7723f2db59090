package file

import (
	"context"
	"maps"
	"slices"
	"time"

	"podd/podconfig"
)

// send sends the whole set if anything has changed. Only then does it store the good versions,
// which must not delay a pod.
func (s *Source) send(ctx context.Context, out chan<- podconfig.Snapshot) error {
	if s.changed {
		s.changed = false
		select {
		case out <- s.snapshot():
		case <-ctx.Done():
			s.save()
			return ctx.Err()
		}
	}
	if s.lastGood.HasPending() && time.Since(s.saved) >= saveDelay {
		s.save()
	}
	return nil
}

func (s *Source) snapshot() podconfig.Snapshot {
	snap := podconfig.Snapshot{Incomplete: !s.ready}
	if s.pathProblem != nil {
		snap.Problems = append(snap.Problems, *s.pathProblem)
	}
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[name]
		snap.Pods = append(snap.Pods, e.Pods...)
		snap.Objects = append(snap.Objects, e.Objects...)
		snap.Problems = append(snap.Problems, e.problems...)
	}
	return snap
}

// save stores the pending good versions.
func (s *Source) save() {
	for path, err := range s.lastGood.Flush() {
		if err != nil {
			s.log.Warn("cannot save the last good version of a manifest", "manifest", path, "error", err)
		}
	}
	s.saved = time.Now()
}

// untilDue returns the time until the next pending check or save.
func (s *Source) untilDue() time.Duration {
	next := time.Now().Add(time.Hour)
	for _, l := range s.pending {
		if l.at.Before(next) {
			next = l.at
		}
	}
	if save := s.saved.Add(saveDelay); s.lastGood.HasPending() && save.Before(next) {
		next = save
	}
	return time.Until(next)
}
