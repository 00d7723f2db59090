package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// failed records a sync that went wrong and says when to try again.
func (w *worker) failed(ctx context.Context, doing string, err error) time.Time {
	if ctx.Err() != nil {
		return time.Time{}
	}
	w.looked.Store(true)
	delay := retryDelay(w.lastSync.failures)
	w.lastSync.failures++
	w.agent.metrics.syncErrors.Inc()
	level := slog.LevelWarn
	text := err.Error()
	if _, recorded := errors.AsType[recordedError](err); recorded || w.reported.err == text {
		level = slog.LevelDebug // said once, until it changes
	}
	w.reported.err = text
	w.log.Log(ctx, level, "pod sync error", "doing", doing, "error", err, "retry_in", delay)
	return time.Now().Add(delay)
}

// recordedError is an error that an event has already reported.
type recordedError struct{ error }

func (e recordedError) Unwrap() error { return e.error }

// retryDelay is 250 ms doubling to 10 s.
func retryDelay(try int) time.Duration {
	return min(250*time.Millisecond<<min(try, 10), 10*time.Second)
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
