package logrotate

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"podd/internal/pod"
)

// lister counts how often it is asked for logs.
type lister struct {
	Runtime
	asked int
	err   error
}

func (l *lister) RunningLogs(context.Context) ([]pod.ContainerLog, error) {
	l.asked++
	return []pod.ContainerLog{{ID: "a"}}, l.err
}

func TestLogsAreListedAnewAfterAChangeAndOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, changed := &lister{}, make(chan struct{}, 1)
		c := Cache(l, changed)
		list := func(what string, want int) {
			t.Helper()
			logs, err := c.RunningLogs(t.Context())
			if !errors.Is(err, l.err) || err == nil && len(logs) != 1 || l.asked != want {
				t.Errorf("%s: got %v, %v, after %d lists, want %d", what, logs, err, l.asked, want)
			}
		}
		list("first", 1)
		time.Sleep(listTTL - time.Nanosecond)
		list("within a minute", 1)
		time.Sleep(time.Nanosecond)
		list("a minute later", 2)
		changed <- struct{}{}
		list("after a change", 3)
		l.err = errors.New("the runtime is away")
		time.Sleep(listTTL)
		list("it fails", 4)
		l.err = nil
		list("after a failure", 5)
	})
}
