package wake

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestNotificationsBeforeTheReceiverLooksAreOne(t *testing.T) {
	s := New()
	for range 3 {
		s.Notify()
	}
	<-s
	select {
	case <-s:
		t.Error("it was woken twice")
	default:
	}
	s.Notify()
	<-s
}

func TestHowLongAWaitLasts(t *testing.T) {
	for name, tc := range map[string]struct {
		wait func(ctx context.Context, s Signal) bool
		want time.Duration
		done bool
	}{
		"a sleep":                        {func(ctx context.Context, _ Signal) bool { return Sleep(ctx, time.Second) }, time.Second, true},
		"a sleep that ctx ends":          {func(ctx context.Context, _ Signal) bool { return Sleep(ctx, time.Minute) }, 10 * time.Second, false},
		"no sleep":                       {func(ctx context.Context, _ Signal) bool { return Sleep(ctx, -time.Second) }, 0, true},
		"until a time":                   {func(ctx context.Context, _ Signal) bool { return Until(ctx, New(), time.Now().Add(time.Second)) }, time.Second, true},
		"until a time that has passed":   {func(ctx context.Context, _ Signal) bool { return Until(ctx, New(), time.Now().Add(-time.Second)) }, 0, true},
		"until a signal":                 {func(ctx context.Context, s Signal) bool { return Until(ctx, s, time.Now().Add(time.Minute)) }, 5 * time.Second, true},
		"until a signal, without a time": {func(ctx context.Context, s Signal) bool { return Until(ctx, s, time.Time{}) }, 5 * time.Second, true},
		"until ctx ends":                 {func(ctx context.Context, _ Signal) bool { return Until(ctx, nil, time.Time{}) }, 10 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				s, begin := New(), time.Now()
				defer time.AfterFunc(5*time.Second, s.Notify).Stop()
				if done := tc.wait(ctx, s); done != tc.done || time.Since(begin) != tc.want {
					t.Errorf("got %t after %v, want %t after %v", done, time.Since(begin), tc.done, tc.want)
				}
			})
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if Sleep(ended, 0) || Sleep(ended, time.Hour) || Until(ended, nil, time.Now()) {
		t.Error("a context that has ended was not noticed")
	}
}

func TestABackoffDoublesFromItsFirstDelayToItsLast(t *testing.T) {
	b, delay := Backoff{Initial: 2 * time.Second, Max: 7 * time.Second}, time.Duration(0)
	for _, want := range []time.Duration{2 * time.Second, 4 * time.Second, 7 * time.Second, 7 * time.Second} {
		if delay = b.Next(delay); delay != want {
			t.Errorf("got %v, want %v", delay, want)
		}
	}
}
