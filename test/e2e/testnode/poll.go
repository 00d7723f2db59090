package testnode

import (
	"context"
	"errors"
	"fmt"
	"time"
)

type stopError struct{ err error }

func (e *stopError) Error() string { return e.err.Error() }
func (e *stopError) Unwrap() error { return e.err }

// Stop makes Poll give up at once with err.
func Stop(err error) error { return &stopError{err} }

// Poll calls f until it returns nil, or until ctx ends; then the last error of
// f is part of the returned one. The interval is the pause between two calls.
func Poll(ctx context.Context, interval time.Duration, f func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var last error
	for {
		err := f()
		if err == nil {
			return nil
		}
		if s, ok := errors.AsType[*stopError](err); ok {
			return s.err
		}
		// A call that the deadline cut short says less than the one before.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last seen: %w", context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}
